"""`gnomon unattended`: searches that run on a device by themselves."""
