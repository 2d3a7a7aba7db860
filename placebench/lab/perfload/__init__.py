"""The main run: seed, serve, load, profile and compare all variants."""
