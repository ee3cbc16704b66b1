"""ONNX Runtime: its driver, and its sessions with several execution providers."""
