"""Comparisons that are started here profile few requests."""

from short_profiles import few_profiled_requests

__all__ = ["few_profiled_requests"]
