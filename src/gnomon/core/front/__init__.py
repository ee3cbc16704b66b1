"""The exact Pareto front of two objectives over chains of operators."""
