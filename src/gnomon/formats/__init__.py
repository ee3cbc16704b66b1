"""Pure readers and writers of files, one format a file."""
