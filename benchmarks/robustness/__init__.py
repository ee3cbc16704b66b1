"""Benchmarks of what gnomon does with bad inputs."""
