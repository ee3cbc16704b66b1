"""One page in HTML of what runs found: `gnomon report`, and --html of the jobs."""
