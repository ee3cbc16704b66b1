"""Prices from measured runs: inside a graph, for sides without shared memory, and as stab computes them."""
