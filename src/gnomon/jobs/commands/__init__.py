"""The declared commands: programs that can be measured like runtimes."""
