"""LiteRT: its driver, its two ways to run a model, and the meaning of its profiler's events."""
