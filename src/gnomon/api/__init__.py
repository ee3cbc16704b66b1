"""The public functions: the options of a job as arguments, its result as a value."""
