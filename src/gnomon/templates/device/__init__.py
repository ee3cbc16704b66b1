"""A kind of device; an address of such a device is `yours:NAME`."""
