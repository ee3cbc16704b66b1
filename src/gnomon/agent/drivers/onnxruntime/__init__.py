"""ONNX Runtime: its driver, and sessions with several execution providers."""
