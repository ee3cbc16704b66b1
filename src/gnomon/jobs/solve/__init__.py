"""`gnomon solve` and `gnomon front`: solutions and Pareto fronts of problems with given prices."""
