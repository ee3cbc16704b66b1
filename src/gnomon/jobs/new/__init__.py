"""The job `new`: writes a package that adds a job, a runtime or a kind of device."""
