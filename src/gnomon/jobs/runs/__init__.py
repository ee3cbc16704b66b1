"""`gnomon runs`: the contents of the results database."""
