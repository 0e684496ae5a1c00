"""What torch's functions do with sparse features: rules by kind, in a table by function."""
