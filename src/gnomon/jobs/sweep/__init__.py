"""`gnomon stab`: a schedule of backends from traces of the ONE runtime."""
