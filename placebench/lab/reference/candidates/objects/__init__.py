"""The classes of the algorithm `objects`, which `naive` and `tuned` have: one object per provider, as in Placement."""
