"""A live Placement as a topology file: read by its database or its API, its names and ids replaced, its trees merged.

`live_placement` reads, `exporter.export` makes a topology of it, which `topology.render_toml` writes.
"""
