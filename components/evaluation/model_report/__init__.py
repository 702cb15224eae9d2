"""Model report: quality and errors of a model, collected during its evaluation."""
