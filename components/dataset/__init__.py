"""TFRecord datasets on disk: the contract between writers and readers. Does not import Beam, TFX or TensorFlow.

names          folders and files            manifest   content of a dataset
files          local and remote paths       records    TFRecord framing, gzip, checksums
example_types  Arrow types -> list kinds    schemas    one flat schema for several files
encode         rows -> tf.Example bytes     decode     tf.Example bytes -> Python values
splits         split rules and assignment   shards     number of shards and assignment of records
row_filter     selection of rows            options    options of ingest
time_formats   ISO 8601 and strptime        times      columns of times as instants
"""
