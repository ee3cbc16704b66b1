"""Spaces of cells: their primitives, and the costs and effects of these."""
