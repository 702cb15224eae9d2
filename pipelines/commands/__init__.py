"""The commands of `infeed`, one a file: arguments in, plain functions called, words out."""
