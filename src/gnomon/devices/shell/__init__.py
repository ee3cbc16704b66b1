"""Devices that are a POSIX shell: adb, sdb, SSH without Python."""
