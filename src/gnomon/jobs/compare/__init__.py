"""Comparing what was measured at different times: `gnomon compare`."""
