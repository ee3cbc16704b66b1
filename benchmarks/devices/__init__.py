"""Benchmarks of devices behind SSH."""
