"""Comparisons that are started here profile few requests."""

from short_profiles import few_profiled_requests, without_profiles

__all__ = ["few_profiled_requests", "without_profiles"]
