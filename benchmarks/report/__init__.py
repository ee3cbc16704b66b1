"""Benchmarks of pages in HTML."""
