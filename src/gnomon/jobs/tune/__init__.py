"""`gnomon tune` and `gnomon exec`: tune the kernels of a network for a device, and measure tuned networks."""
