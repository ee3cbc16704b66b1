"""ExecuTorch: its driver, and lowering exported programs."""
