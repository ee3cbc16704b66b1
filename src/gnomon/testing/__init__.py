"""Contract tests that ship with gnomon: subclass them to test your own device or store.

They need pytest, which nothing else in the package imports.
"""
