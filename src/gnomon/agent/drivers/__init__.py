"""Runtimes on the device: a file each, or a folder with a `driver.py`; they load models, time them and say what ran."""
