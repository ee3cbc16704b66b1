"""Benchmarks of latency tables and estimators."""
