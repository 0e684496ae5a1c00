"""The contraction orders, one a file: a named class below :class:`.Order` registers itself."""
