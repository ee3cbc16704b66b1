"""Suites: many models on many devices, by several jobs."""
