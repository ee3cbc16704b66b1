"""Exact placement of a graph, given prices of operators and of transfers."""
