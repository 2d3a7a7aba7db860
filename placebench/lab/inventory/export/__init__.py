"""Export a live Placement as a topology file: read it, replace names and ids, merge equal trees into tree types.

`live_placement` reads the data, `exporter.export` makes a topology of it, and `topology.render_toml` writes the file.
"""
