"""`gnomon estimator`: latency of networks that were never measured."""
