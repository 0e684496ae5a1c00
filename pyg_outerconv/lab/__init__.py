"""The applications around the core: data, training, search, tables, benchmarks, commands."""
