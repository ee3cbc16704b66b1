"""Values and pure functions; nothing here uses a file, process, socket, clock or log."""
