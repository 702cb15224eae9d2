"""Local runs of a pipeline: LocalDagRunner with a live table of nodes, a log, and the outcome."""
