"""The search spaces that come with gnomon."""
