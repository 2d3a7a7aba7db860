"""Types that HTTP handlers, solvers and SQL share: the candidates request, problems, settings and validation."""
