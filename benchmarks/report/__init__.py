"""Benchmarks of HTML pages."""
