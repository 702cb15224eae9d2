"""A compiled job as data: its file, its tasks in order, its parameters, its disks and its archive."""
