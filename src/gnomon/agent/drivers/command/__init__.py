"""Any program as a runtime: how it is started, and how its times are read."""
