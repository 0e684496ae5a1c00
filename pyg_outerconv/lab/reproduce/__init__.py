"""Tables of results: rows and data sets in TOML, trained, resumed, and held against figures."""
