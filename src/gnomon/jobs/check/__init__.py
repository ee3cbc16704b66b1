"""The job `check`: what is in a model's file that will matter, before anything runs."""
