"""Figures of docs/benchmarks.md: each script prints one JSON document; python -m benchmarks.FOLDER.NAME."""
