"""Comparing measurements from different times: `gnomon compare`."""
