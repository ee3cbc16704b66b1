"""What executes a model: one adapter a file, found by entry point."""
