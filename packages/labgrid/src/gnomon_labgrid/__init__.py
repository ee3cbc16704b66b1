"""Devices of a lab shared through labgrid, for gnomon; `labgrid:PLACE` is the address of a device."""
