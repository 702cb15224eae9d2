"""TFRecord datasets on disk: the contract between writers and readers. Does not import Beam, TFX or TensorFlow.

names          folders and files            manifest   content of a dataset
files          local and remote paths       records    TFRecord framing, gzip, checksums
example_types  Arrow types -> list kinds    schemas    one flat schema for several files
encode         rows -> tf.Example bytes     decode     tf.Example bytes -> Python values
splits         split rules and assignment   options    options of ingest, its shards and spans
row_filter     selection of rows            reading    any dataset, in ranges of records
time_formats   ISO 8601 and strptime        times      columns of times as instants
"""
