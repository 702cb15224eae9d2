"""Runs a pipeline on this machine: LocalDagRunner with a live table of nodes, a log, and what came out."""
