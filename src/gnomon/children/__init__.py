"""Separate programs that load packages that gnomon's own processes never load: quantisers and runtimes.

They import nothing from gnomon, so that any interpreter with the packages can run them: `python FOLDER NAME`.
"""
