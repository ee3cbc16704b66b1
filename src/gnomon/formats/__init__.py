"""Pure readers and writers of files, with one format in each module."""
