"""Search for a basis: family mix, depth, width and training options, on validation data alone."""
