"""From a config to the file that a cluster runs, with what every node gets there."""
