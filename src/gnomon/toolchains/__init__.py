"""Quantisers and compilers that turn a float32 ONNX model, in recorded steps, into a file to measure with a runtime."""
