"""The figures in docs/benchmarks.md. Each script prints one JSON document: python -m benchmarks.FOLDER.NAME."""
