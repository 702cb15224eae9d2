"""Views of column statistics and comparisons: tables for a terminal, and an HTML page of histograms."""
