"""Supports: families that say which sources each target sees."""
