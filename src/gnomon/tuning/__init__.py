"""The host's side of kernels that are tuned for a device: no TVM here, child programs and servers have it."""
