"""The devices of a lab that labgrid shares, for gnomon: `labgrid:PLACE` is an address of one."""
