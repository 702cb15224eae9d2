"""Did training wait for its input, where, and what to change."""
