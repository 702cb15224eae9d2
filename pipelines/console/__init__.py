"""What people see: status of nodes, live table, logs, exit codes."""
