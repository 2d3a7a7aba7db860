"""Start locust in three quarters of its CPU time: `python -m placebench.loadgen` takes the arguments of `locust`.

gevent asks 25 times for plugins of its own, each time in the metadata of every installed package: here it asks once. No
garbage is collected meanwhile, as imports leave none.
"""

import gc
from functools import cache
from importlib import metadata

if __name__ == "__main__":
    gc.disable()
    entry_points = metadata.entry_points
    metadata.entry_points = cache(entry_points)  # type: ignore[assignment]
    from locust.main import main

    metadata.entry_points = entry_points
    gc.enable()
    main()  # type: ignore[no-untyped-call]
