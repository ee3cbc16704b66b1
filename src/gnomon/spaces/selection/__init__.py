"""Selection of the primitives to keep."""
