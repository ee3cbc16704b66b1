"""The choice of tuned kernels that are good on all devices."""
