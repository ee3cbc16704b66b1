"""Adapters of runtimes, one per file, found by entry point."""
