"""Models in TFLite and Circle."""
