"""The former place of `placebench.lab.reference.wsgi`, for configurations of servers that name it until 0.4."""

from importlib import import_module

application = import_module("placebench.lab.reference.wsgi").application
