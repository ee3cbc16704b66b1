"""Training networks of a space with PyTorch, which is loaded at the first use of a function that needs it."""
