"""The job `check`: findings in a model's file before it is run."""
