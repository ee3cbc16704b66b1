"""Pareto fronts: dominance, and the front of a cost model with a certificate."""
