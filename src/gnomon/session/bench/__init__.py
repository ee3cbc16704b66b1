"""Many small models on one device: the bench, and what they are measured beside."""
