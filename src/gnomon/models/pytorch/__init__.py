"""What exporters of PyTorch write: its exported programs, and those of ExecuTorch."""
