"""The laboratory: the benchmark of allocation candidates, built on the other packages; none of them imports it."""
