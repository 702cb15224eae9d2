"""Number of calls of our executors in the running test."""

count = 0


def add() -> None:
    global count
    count += 1
