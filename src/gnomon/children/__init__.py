"""Programs of their own that load what gnomon's processes never load: quantisers and runtimes.

They import nothing of gnomon, so that any interpreter that has the packages can run them: `python FOLDER NAME`.
"""
