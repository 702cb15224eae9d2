"""What works on this machine and what does not, and whether an image carries the same code."""
