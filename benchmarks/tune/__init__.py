"""Benchmarks of tuning and overlays."""
