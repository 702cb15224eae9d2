"""Column statistics and comparisons for people: tables, and a page of histograms."""
