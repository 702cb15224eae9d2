"""Sources: one file or package per format. `formats.FORMATS` lists them."""
