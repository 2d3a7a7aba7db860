"""The reference service: OpenStack Placement's API at microversion 1.39, on nested trees of resource providers.

`api.pipeline.make_app(engine, variant)` returns the service as a WSGI application; `wsgi.application` is the service
that environment variables describe. `api/routes.py` lists all routes; `variants.py` and `optimizations/` have the
optimizations.
"""
