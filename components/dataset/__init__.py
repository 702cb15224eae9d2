"""A TFRecord dataset on disk: the contract between whoever writes one and whoever reads it. No Beam, TFX or TensorFlow.

names      folders and files            manifest   what a dataset holds
files      local and remote paths       records    TFRecord framing, gzip, checksums
columns    Arrow type -> kind of list   schemas    several files -> one flat schema
encode     rows -> tf.Example bytes     decode     tf.Example bytes -> values, for eyes
splits     which splits, by which rule  assign     rows -> the number of their split
row_filter which rows to keep           shards     how many files, and what goes into which
options    what to do while ingesting
"""
