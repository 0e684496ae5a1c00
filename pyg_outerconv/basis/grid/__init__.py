"""Grids: shifts along axes, windows, and the families that are made of them."""
