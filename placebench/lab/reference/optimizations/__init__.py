"""The optimizations of the reference service, each with its baseline and its alternative implementations."""
