"""Any database that SQLAlchemy or ADBC reaches -> record batches."""
