"""The job `new`: a package that adds a job, a runtime or a kind of device."""
