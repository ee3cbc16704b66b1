"""The measuring protocol of gnomon, and the loop that every job uses to measure."""
