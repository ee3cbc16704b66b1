"""Handwritten commands, one file each: options, a call of `gnomon.api`, and output."""
