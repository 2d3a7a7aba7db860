"""Choice of the requests that are recorded: middleware, sampling, and attachment from outside."""
