"""Benchmarks of labs: many devices at once."""
