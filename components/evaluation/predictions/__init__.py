"""Model and examples -> predictions, beside the columns that say of which rows they are."""
