"""Contract tests that ship with gnomon: subclass them to test a device or a store of your own.

They need pytest, which nothing else in the package imports.
"""
