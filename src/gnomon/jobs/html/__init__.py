"""A single HTML page with the results of runs: `gnomon report`, and --html of the jobs."""
