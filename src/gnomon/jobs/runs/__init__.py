"""`gnomon runs`: the contents of the record."""
