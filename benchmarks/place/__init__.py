"""Benchmarks of placement on real runtimes."""
