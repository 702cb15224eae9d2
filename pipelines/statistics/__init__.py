"""What the columns of a dataset hold, for people: tables, a page of histograms, and how two datasets differ."""
