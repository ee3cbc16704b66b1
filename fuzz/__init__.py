"""Attacks every reader of outside input with damaged inputs: see CONTRIBUTING.md."""
