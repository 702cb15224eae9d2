"""A compiled job as data: its file, the one walk over its DAG, its parameters, its targets."""
