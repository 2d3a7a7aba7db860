"""The application that mod_wsgi serves, named by $PLACEBENCH_APPLICATION as MODULE:CALLABLE or MODULE:FACTORY().

Run by path, in any environment; imports nothing of placebench.
"""

import importlib
import os

_module, _, _name = os.environ["PLACEBENCH_APPLICATION"].partition(":")
application = getattr(importlib.import_module(_module), _name.removesuffix("()"))
if _name.endswith("()"):
    application = application()
