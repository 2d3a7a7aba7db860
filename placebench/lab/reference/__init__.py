"""The reference service: OpenStack Placement's API at microversion 1.39, on nested trees of resource providers.

`api.pipeline.make_app(engine, variant)` is the service, `wsgi.application` the same from environment variables. The
whole API is in `api/routes.py`; what is optimized is in `variants.py` and `optimizations/`.
"""
