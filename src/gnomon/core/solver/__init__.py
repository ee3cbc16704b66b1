"""Exact placement of a graph with prices of operators and of transfers."""
