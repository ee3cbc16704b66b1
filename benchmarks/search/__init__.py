"""Benchmarks of searches for fronts."""
