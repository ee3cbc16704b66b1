"""The files of the ONE Pareto tool: backends, dumps, operator lists."""
