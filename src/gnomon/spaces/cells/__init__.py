"""Spaces of cells: their primitives, and the costs and effects of the primitives."""
