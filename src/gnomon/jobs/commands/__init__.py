"""The declared commands: programs that can be measured as runtimes are."""
