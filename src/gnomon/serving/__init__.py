"""The server of `gnomon serve`: it receives models over HTTP, measures them, and returns their latency."""
