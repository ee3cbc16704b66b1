"""Devices over SSH that have Python: a program there keeps and ends what gnomon starts."""
