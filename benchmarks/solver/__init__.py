"""Benchmarks of placement problems, solved."""
