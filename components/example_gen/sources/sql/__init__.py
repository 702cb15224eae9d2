"""Reader of databases, by SQLAlchemy or ADBC."""
