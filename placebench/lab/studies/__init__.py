"""Studies: a measurement at each of some points, in interleaved repeats; one module for each `placebench lab study`.

`study` runs them. It and they build on the modules of `placebench.compare`, and none of those knows them.
"""
