"""From a float32 ONNX model to what a runtime measures, in recorded steps: quantisers and compilers."""
