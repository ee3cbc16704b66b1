"""Models of ncnn, and conversion to them."""
