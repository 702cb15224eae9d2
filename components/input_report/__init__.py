"""Report on the input of a training run: the wait, its cause, and recommended changes."""
