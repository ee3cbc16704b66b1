"""The job `where`: the backend of each operator, according to the runtime's own report, before measuring anything."""
