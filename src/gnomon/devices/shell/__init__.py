"""Devices that need only a POSIX shell: adb, sdb, and SSH without Python."""
