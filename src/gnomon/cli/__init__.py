"""The command line: parse, call one job, render."""
