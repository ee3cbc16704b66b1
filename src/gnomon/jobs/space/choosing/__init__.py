"""Decisions from a profile: the primitives, the networks, the lookup table, and the proof."""
