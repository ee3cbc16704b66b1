"""The job `check`: findings in a model's file that will matter, before anything runs."""
