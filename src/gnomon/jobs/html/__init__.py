"""A single HTML page with the results of runs: `gnomon report`, and the --html option of jobs."""
