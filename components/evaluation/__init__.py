"""Model and examples -> metrics."""
