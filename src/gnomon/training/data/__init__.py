"""Data sets that networks are trained on."""
