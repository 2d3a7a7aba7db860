"""What a page for eyes is made of: the shell of a self-contained document, templates, and charts as SVG text.

    from placebench.page import charts, environment, shell
    shell("A title", charts.bars([...], ...))

A page opens from a disk without a network, reads well on a phone and on paper, and runs no script.
"""

from placebench.page.shell import description_of, environment, shell

__all__ = ["description_of", "environment", "shell"]
