"""What is known of the columns of a dataset: statistics of parts that add up, and where they are kept."""
