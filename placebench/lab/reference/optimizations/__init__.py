"""The optimizations of the reference service: each with its baseline and alternative implementations side by side."""
