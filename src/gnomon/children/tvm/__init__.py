"""The programs that search, build and measure with TVM in a separate Python."""
