"""Drivers of runtimes on the device, each a file or a folder with a `driver.py`; they load models, time them, and
report what ran.
"""
