"""The record of every run: the interface of a store, and the store in SQLite."""
