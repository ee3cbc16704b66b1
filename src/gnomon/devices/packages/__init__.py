"""Packages for the Python of a device: they are fetched on this machine and installed on the device."""
