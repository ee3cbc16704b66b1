"""The files of aw_nas: its configuration, its tables, its output."""
