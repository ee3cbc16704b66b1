"""A runtime: `adapter.py` for gnomon, `driver.py` for the device."""
