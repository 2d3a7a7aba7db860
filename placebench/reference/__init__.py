"""The reference service: OpenStack Placement's API at microversion 1.39, over nested trees of resource providers.

`app.make_app(engine, variant)` is the service, `wsgi.application` the same from environment variables. A request's way
stands in `journey.py`, the whole API in `routes.py`, what is optimized in `variants.py` and `steps/`.
"""
