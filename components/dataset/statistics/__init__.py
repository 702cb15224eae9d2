"""Column statistics of datasets: gathered in parts, merged, and stored."""
