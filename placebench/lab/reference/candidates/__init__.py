"""The search for allocation candidates: one object per provider, or identical trees solved once, or from a cache."""
