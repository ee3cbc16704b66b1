"""Wheels for the Python of a device, fetched here and installed there."""
