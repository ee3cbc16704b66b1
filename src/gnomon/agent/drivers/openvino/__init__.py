"""OpenVINO: its driver, and models on several devices."""
