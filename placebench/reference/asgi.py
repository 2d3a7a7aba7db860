"""The former place of `placebench.lab.reference.asgi`, kept until 0.4 for server configurations that name it."""

from importlib import import_module

application = import_module("placebench.lab.reference.asgi").application
