"""The main run of the laboratory: seed, serve, load, profile and compare all variants."""
