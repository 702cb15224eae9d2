"""One file or package a format; the table of them is `formats.FORMATS`."""
