"""Training networks of a space with PyTorch, which is imported when a function first needs it."""
