"""The algorithm of `dedup` and `cached`: identical provider trees are solved once, for all of them.

Both variants use one solver on a `TreeIndex`, keep it, and read only the trees that have changed. `dedup` finds them by
the transactions that wrote their rows (`versions`, `dedup_service`), `cached` in a change log (`cached_index`).

`statements` has the SELECTs, `fetch` executes them, and `decode` puts their rows into an index. `solver` does not use
the database. `relevance` reduces a provider to the facts that matter to a request, and `anchors` does so for a tree.
`equivalence` compares the trees of a layout by columns of their amounts, and searches each distinct anchor once.
`selection` applies the limit and writes the document by filling `pieces`: those of a candidate come from `templates`,
those of the summaries from the layout.
"""
