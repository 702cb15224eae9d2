"""The model report: how good a model is and where it errs, from the pass that evaluates it."""
