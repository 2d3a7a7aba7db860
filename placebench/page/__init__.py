"""Self-contained HTML pages: the `shell` of a document, the `environment` of its templates, and charts as SVG text.

    from placebench.page import shell
    from placebench.page.row_charts import Bar, bars
    shell("A title", bars([Bar("naive", (0.52,))], title="CPU", description="Per request", show=units.duration))

A page opens from a disk without a network, reads well on a phone and on paper, and runs no script. Charts are pure
functions from numbers to markup, as wide as their box; a screen reader reads their title. Their colours are CSS
variables by role (`baseline`, `variant`, `between`) that work light, dark and for the colour-blind; no information is
in the colour alone.
"""

from placebench.page.shell import description_of, environment, shell

__all__ = ["description_of", "environment", "shell"]
