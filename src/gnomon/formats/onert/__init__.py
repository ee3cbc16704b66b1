"""The files of the ONE runtime: configuration, manifest, operators, traces."""
