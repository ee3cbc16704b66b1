"""The jobs, one a file: space, price, decision and proof."""
