"""The subjects of a comparison: variants, plans, requests and data."""
