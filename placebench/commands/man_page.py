"""The man page of the whole command line: `man_page` makes it from the parser that `--help` is printed from."""

import argparse
import re
from collections.abc import Iterator


def man_page(parser: argparse.ArgumentParser, version: str) -> str:
    """Return the page in roff's man macros; *parser* is the parser of the whole command line.

    It has a section for each command, with its options. It has no date: the same version has the same page.
    """
    lines = [f'.TH {parser.prog.upper()} 1 "" "{parser.prog} {version}" "User Commands"', ".nh", ".ad l"]
    lines += [".SH NAME", f"{parser.prog} \\- {_text(_line(parser.description or ''))}"]
    lines += [".SH SYNOPSIS", f".B {parser.prog}", ".I COMMAND", r"[\fIoptions\fR]"]
    lines += [".SH OPTIONS", *_options(parser), ".SH COMMANDS"]
    for below in _commands(parser):
        if not any(isinstance(each, argparse._SubParsersAction) for each in below._actions):
            lines += [f".SS {_text(below.prog)}", *_paragraph(below.description), *_options(below)]
            lines += _paragraph(below.epilog)
    if parser.epilog:
        heading, _, codes = parser.epilog.strip().partition("\n")
        lines += [f".SH {_text(heading.rstrip(':').upper())}"]
        for line in codes.splitlines():
            code, _, meaning = line.strip().partition(" ")
            lines += [".TP", rf"\fB{code}\fR", _text(meaning.strip())]
    return "\n".join(lines)


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield below
                yield from _commands(below)


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = parser._get_formatter()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
            continue
        if action.option_strings:
            names = ", ".join(rf"\fB{_text(name)}\fR" for name in action.option_strings)
            values = "" if action.nargs == 0 else formatter._format_args(action, (action.dest or "").upper())
            head = f"{names} {_text(values)}".rstrip()
        else:
            values = formatter._format_args(action, action.dest.upper())
            name = f"{action.dest.upper()} ..." if action.nargs == argparse.REMAINDER else values
            head = rf"\fI{_text(name)}\fR"
        yield from (".TP", head)
        yield _text(_line(formatter._expand_help(action) if action.help else ""))


def _paragraph(text: str | None) -> list[str]:
    """Return the lines of a description, whose line breaks stay where a line is indented."""
    if not text:
        return []
    if re.search(r"^\s", text, re.MULTILINE):
        return [".nf", *map(_text, text.strip("\n").splitlines()), ".fi"]
    return [_text(_line(text))]


def _line(text: str) -> str:
    return " ".join(text.split())


def _text(text: str) -> str:
    """Return text in which roff sees no command of its own, with ASCII for "…", which no ASCII terminal shows."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("~", r"\(ti").replace("^", r"\(ha")
    escaped = escaped.replace("`", r"\(ga").replace("'", r"\(aq").replace("…", "...")
    return rf"\&{escaped}" if escaped.startswith(".") else escaped
