"""Estimators of a net's latency from what it is made of: a Bayesian linear model with intervals (see
docs/jobs/estimator.md)."""
