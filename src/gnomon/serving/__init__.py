"""The server of `gnomon serve`: models come in over HTTP, are measured on this machine, and their latency goes back."""
