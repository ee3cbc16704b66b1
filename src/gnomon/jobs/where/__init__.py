"""The job `where`: what a runtime runs where, by its own report, before anything is measured."""
