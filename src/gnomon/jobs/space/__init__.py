"""`gnomon space`: finds the building blocks that are worth searching on a device."""
