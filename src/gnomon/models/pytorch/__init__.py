"""Files of PyTorch's exporters: exported programs, and ExecuTorch's programs."""
