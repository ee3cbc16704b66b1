"""Adapters of runtimes, one a file, found by entry point."""
