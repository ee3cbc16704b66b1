"""Estimators of a net's latency from its units: a Bayesian linear model with intervals (see docs/jobs/estimator.md)."""
