"""`gnomon table`: latency tables of blocks."""
