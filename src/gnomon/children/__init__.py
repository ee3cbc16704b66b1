"""Separate programs for packages that gnomon's own processes never load: quantisers and runtimes.

They import nothing from gnomon, so that any interpreter that has the packages can run them: `python FOLDER NAME`.
"""
