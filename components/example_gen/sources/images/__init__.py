"""Reader of images."""
