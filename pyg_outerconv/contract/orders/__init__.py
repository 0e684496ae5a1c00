"""The contraction orders by group; a named class below :class:`.Order` registers itself."""
