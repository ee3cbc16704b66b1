"""Files, locks, processes and child programs of this machine."""
