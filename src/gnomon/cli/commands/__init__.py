"""One file a command: its options, one call of `gnomon.api`, what is printed."""
