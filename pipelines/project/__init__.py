"""Project: config file, survey of the data, and the resulting decisions."""
