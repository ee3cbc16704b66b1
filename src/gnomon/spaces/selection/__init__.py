"""The selection of the primitives that a search space keeps."""
