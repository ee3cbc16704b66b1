"""The host's side of kernels that are tuned for a device, without TVM, which runs in child programs and servers."""
