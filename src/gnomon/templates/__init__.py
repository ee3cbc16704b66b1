"""Packages that `gnomon new` writes: each works as it is, and is changed line by line into another's own."""
