"""Values and pure functions, which use no file, process, socket, clock or log."""
