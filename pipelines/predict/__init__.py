"""Asks an exported model about pictures or rows of tables."""
