"""A small Django project; `run` serves its requests under the profiler."""
