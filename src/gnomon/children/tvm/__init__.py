"""The programs that search, build and measure with TVM in a Python of their own."""
