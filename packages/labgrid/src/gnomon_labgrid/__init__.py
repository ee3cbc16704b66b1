"""Devices of a lab that labgrid shares, for gnomon; `labgrid:PLACE` is the address of a device."""
