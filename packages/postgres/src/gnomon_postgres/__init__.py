"""Results databases in PostgreSQL, for gnomon: `--record postgresql://USER@HOST/DATABASE` selects a database."""
