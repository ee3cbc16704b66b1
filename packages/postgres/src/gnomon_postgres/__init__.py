"""Results databases of a PostgreSQL server, for gnomon: `--record postgresql://USER@HOST/DATABASE` names one."""
