"""What is compared: variants, plans, requests and data."""
