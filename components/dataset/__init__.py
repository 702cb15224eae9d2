"""A TFRecord dataset on disk: the contract between whoever writes one and whoever reads it. No Beam, TFX or TensorFlow.

names      folders and files            manifest   what a dataset holds
files      local and remote paths       records    TFRecord framing, gzip, checksums
columns    Arrow type -> kind of list   encode     record batches -> tf.Example bytes
splits     which split a record is in   shards     how many files, and what goes into which
options    what to do while ingesting
"""
