"""Inventory data sets: topologies, the database tables for them, seeding, and export from a live Placement."""
