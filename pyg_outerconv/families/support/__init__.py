"""Supports: which sources each target may see, as families and as rules."""
