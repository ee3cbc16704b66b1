"""Benchmarks of search spaces."""
