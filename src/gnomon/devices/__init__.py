"""Devices, on which commands run: their interface, and this machine as a device."""
