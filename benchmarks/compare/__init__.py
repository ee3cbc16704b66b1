"""Benchmarks of `gnomon compare`."""
