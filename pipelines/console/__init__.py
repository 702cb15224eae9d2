"""Console interface: node states, live table, logs, and exit codes."""
