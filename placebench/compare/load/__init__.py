"""How a load is put on a service: runs, steps and the search for capacity."""
