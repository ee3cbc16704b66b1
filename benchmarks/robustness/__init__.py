"""Benchmarks of gnomon's handling of bad inputs."""
