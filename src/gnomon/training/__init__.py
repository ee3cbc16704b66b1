"""Trains a space's networks with PyTorch, which is imported only when a function first needs it."""
