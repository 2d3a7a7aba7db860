"""The laboratory: a benchmark of allocation candidates. It is built on the other packages, which do not import it."""
