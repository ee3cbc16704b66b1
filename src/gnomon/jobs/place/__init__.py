"""`gnomon place` and `gnomon profile`: the backend for each operator."""
