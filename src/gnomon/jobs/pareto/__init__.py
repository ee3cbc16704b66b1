"""`gnomon pareto`: the assignments that are Pareto-optimal in time and memory."""
