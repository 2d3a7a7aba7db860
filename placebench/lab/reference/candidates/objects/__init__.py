"""The candidate search of the variants `naive` and `tuned`: one object per provider, as in Placement."""
