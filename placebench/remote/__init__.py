"""A run on another machine, by SSH: `session` is the side that starts it, `far_side` is what runs there."""
