"""Shared foundations of all packages: errors, options, user code, progress, locks, units, HTML pages."""
