"""A kind of device: `yours:NAME` is an address of one."""
