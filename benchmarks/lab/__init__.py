"""Benchmarks of labs: many devices at the same time."""
