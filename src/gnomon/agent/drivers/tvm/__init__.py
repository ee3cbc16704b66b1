"""Apache TVM: its driver, and compiling in a separate process."""
