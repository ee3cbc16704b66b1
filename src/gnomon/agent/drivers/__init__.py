"""Drivers of runtimes on the device, each in its own file or in a folder with a `driver.py`; they load models, time
them, and report what ran.
"""
