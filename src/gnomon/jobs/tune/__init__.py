"""`gnomon tune` and `gnomon exec`: tuned kernels of a network on a device."""
