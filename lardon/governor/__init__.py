"""The Resource Governor: what may be used now. Knows no task, queue or worker."""
