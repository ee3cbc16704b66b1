"""`gnomon place` and `gnomon profile`: which backend takes which operator."""
