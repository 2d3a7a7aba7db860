"""Another algorithm: each distinct shape of a tree is solved once, and written for all trees of it. The key pieces are
`answer_by_dedup`, and beneath it `Picture`, `fetch` and `solve`.

One solver, two places where the picture comes from: `dedup` reads it for each request, and keeps nothing; whoever
keeps one brings it up to date first. What must be known of the providers stands in `picture`, what PostgreSQL says of
it in `statements`, and `fetching` puts it together. `solve` is pure: `demands` reduces a provider to what matters to
the request and `anchors` a tree, `growing` searches each distinct anchor, `plans` keeps what was found, `choosing` cuts
it to what is wanted, and `parts` and `writing` make text of it by filling templates. `answering` puts both together.
"""
