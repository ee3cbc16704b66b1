"""Apache TVM: its driver, and compiling in a process of its own."""
