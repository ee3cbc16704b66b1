"""LiteRT: its driver, its two ways to run a model, and what its profiler means."""
