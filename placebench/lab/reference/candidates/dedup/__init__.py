"""An algorithm of its own: identical provider trees are solved once, and written for all of them.

One solver, two places where its `TreeIndex` comes from: `dedup` reads all rows where something was written and decodes
those that have changed (`service`); `cached` keeps an index and reads what has changed. `statements` has the SELECTs,
`fetch` sends them, `decode` puts their rows into an index. `solver` is pure: `relevance` reduces a provider
to what matters to the request, `anchors` a tree; `equivalence` compares the trees of a layout by columns of their
amounts, and searches each distinct anchor once; `selection` cuts what was found to what is wanted, and writes it by
filling `pieces`: those of a candidate from `templates`, those of the summaries from the layout.
"""
