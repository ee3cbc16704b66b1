"""Prices from measured runs: inside a graph, on sides without shared memory, and those of stab."""
