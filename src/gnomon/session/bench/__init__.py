"""Many small models on one device: the bench, and the reference models that run next to them."""
