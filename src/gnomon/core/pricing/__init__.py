"""Prices from measured runs: of operators inside a graph, on sides without shared memory, and as stab computes them."""
