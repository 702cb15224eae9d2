"""TFRecord datasets on disk: the contract between writers and readers. Imports no Beam, TFX or TensorFlow.

names      folders and files            manifest   what a dataset holds
files      local and remote paths       records    TFRecord framing, gzip, checksums
columns    Arrow type -> kind of list   schemas    several files -> one flat schema
encode     rows -> tf.Example bytes     decode     tf.Example bytes -> values, for eyes
splits     which splits, by which rule  assign     rows -> the number of their split
row_filter which rows to keep           shards     how many files, and what goes into which
options    what to do while ingesting
"""
