"""Which primitives to keep."""
