"""Values and pure functions: no file, process, socket, clock or log."""
