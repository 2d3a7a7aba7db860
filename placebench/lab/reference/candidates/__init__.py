"""The search for allocation candidates, by three algorithms: `objects`, `dedup` and `cached`."""
