"""ONNX Runtime: its driver, and what several execution providers in one session take."""
