"""Files of PyTorch's exporters: its exported programs, and those of ExecuTorch."""
