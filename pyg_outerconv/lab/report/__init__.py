"""Reports of finished runs: one run looked at closely, several compared."""
