"""Where commands run: what a device is, and this machine as one."""
