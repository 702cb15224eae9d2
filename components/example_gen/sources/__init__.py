"""Sources: one or two files per format. `formats.FORMATS` lists them."""
