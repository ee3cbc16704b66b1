"""Contract tests that ship with gnomon: subclass them to test your own device, runtime, toolchain, strategy or space.

They need pytest, which nothing else in the package imports.
"""
