"""Many small models on one device: the bench, what they are measured beside, tools that measure by themselves."""
