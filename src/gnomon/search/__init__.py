"""Ask/tell strategies over a Space, for objectives that only whole runs can measure."""
