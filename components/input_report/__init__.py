"""Report on the input of a training: the wait, its cause, and what to change."""
