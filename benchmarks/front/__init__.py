"""Benchmarks of fronts."""
