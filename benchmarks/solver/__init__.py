"""Benchmarks of solving placement problems."""
