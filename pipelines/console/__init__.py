"""Console interface: node states, live table, logs, questions, and exit codes."""
