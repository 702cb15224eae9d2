"""What every other room stands on: errors, options, user code, progress, locks, units, pages."""
