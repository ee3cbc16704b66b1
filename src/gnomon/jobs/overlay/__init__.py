"""`gnomon overlay`: tuned kernels that are good on all devices."""
