"""`gnomon place` and `gnomon profile`: which backend should run each operator."""
