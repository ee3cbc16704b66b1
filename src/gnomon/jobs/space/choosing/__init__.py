"""Deciding from a profile: which primitives, which networks, the lookup table, and the proof."""
