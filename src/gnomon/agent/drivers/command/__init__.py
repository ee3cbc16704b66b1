"""Uses any program as a runtime: starts it and reads its times."""
