"""Images -> record batches that keep each file's own bytes, or hold its pixels."""
