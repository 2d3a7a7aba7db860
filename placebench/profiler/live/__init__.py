"""The live page: recordings as they come, in a browser."""
