"""Pareto fronts: dominance, and the exact front of two objectives over chains of operators."""
