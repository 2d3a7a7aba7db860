"""Inventory data sets: topologies, the tables that hold them, how these are filled and exported."""
