"""gnomon measures neural networks on the hardware they will run on, and decides what should run where."""

__version__ = "0.1.0"
