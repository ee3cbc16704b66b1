"""The job `where`: the backend of each operator by the runtime's own report, before anything is measured."""
