"""`gnomon devices`: the devices that have a name, and what gnomon keeps on them."""
