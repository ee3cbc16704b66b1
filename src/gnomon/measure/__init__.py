"""How gnomon measures, and the loop that every job measures with."""
