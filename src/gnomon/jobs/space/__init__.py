"""`gnomon space`: which building blocks are worth searching on a device."""
