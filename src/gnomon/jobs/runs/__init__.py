"""`gnomon runs`: what the record holds."""
