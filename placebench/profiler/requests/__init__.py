"""Which requests are recorded: middleware, sampling, and attachment from outside."""
