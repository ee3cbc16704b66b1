"""Tuning kernels for a device, on the host's side; TVM runs only in child programs and servers."""
