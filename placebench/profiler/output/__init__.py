"""Formats in which recordings are written: HTML pages, SVG flame graphs, speedscope files and data frames."""
