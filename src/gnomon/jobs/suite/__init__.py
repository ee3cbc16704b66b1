"""Suites: many models on many devices, measured by several jobs."""
