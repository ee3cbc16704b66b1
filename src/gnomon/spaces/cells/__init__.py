"""Spaces of cells: their primitives, what each costs and is worth."""
