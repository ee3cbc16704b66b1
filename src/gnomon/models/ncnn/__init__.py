"""Models of ncnn, and the way to them."""
