"""The record of every run: what a store is, and the one in SQLite."""
