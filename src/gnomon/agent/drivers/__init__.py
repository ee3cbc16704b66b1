"""One file a runtime: what loads it on the device, times it and says what it ran."""
