"""`gnomon devices`: the named devices, and the files that gnomon keeps on them."""
