"""`gnomon solve` and `gnomon front`: problems whose prices are given."""
