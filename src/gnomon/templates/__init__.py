"""Packages that `gnomon new` writes: each works unchanged, and its user replaces it line by line."""
