"""Shell completion: `completion_script` generates a script for bash, zsh or fish from the parser of the command line.

    eval "$(placebench --print-completion bash)"

The script contains every command with its subcommands, options and choices, so that completion starts no Python.
Options that take a file or a folder, and positional arguments, are completed as file names.
"""

import argparse
from collections.abc import Iterator
from typing import NamedTuple

_ZSH = [
    # A user without a .zshrc has no completion system yet.
    "(( $+functions[compdef] )) || { autoload -U compinit && compinit; }",
    "autoload -U +X bashcompinit && bashcompinit",
]


class _Level(NamedTuple):
    """The words that may follow a command or a group."""

    words: str
    """The command or group, including the program's name."""
    candidates: tuple[str, ...]
    """Subcommands and options that may follow."""
    choices: dict[str, tuple[str, ...]]
    """The values of each option that has a fixed set of values."""


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for the shell to evaluate; *parser* is the parser of the whole command line."""
    levels = list(_levels(parser))
    return _fish(levels) if shell == "fish" else _bash(levels, zsh=shell == "zsh")


def _levels(parser: argparse.ArgumentParser) -> Iterator[_Level]:
    names: list[str] = []
    choices: dict[str, tuple[str, ...]] = {}
    below: list[argparse.ArgumentParser] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            names += action.choices
            below += action.choices.values()
        else:
            names += action.option_strings
            if action.choices:
                choices |= dict.fromkeys(action.option_strings, tuple(map(str, action.choices)))
    yield _Level(parser.prog, tuple(names), choices)
    for each in below:
        yield from _levels(each)


def _bash(levels: list[_Level], *, zsh: bool) -> str:
    """Return the script for bash and zsh: a function that finds the longest command, with a case for each."""
    cases = []
    for each in levels:
        for option, values in each.choices.items():
            cases.append(f'        "{each.words}|{option}") candidates="{" ".join(values)}" ;;')
        cases.append(f'        "{each.words}|"*) candidates="{" ".join(each.candidates)}" ;;')
    known = "|".join(f'"{each.words}"' for each in levels)
    lines = [
        *(_ZSH if zsh else []),
        "_placebench() {",
        '    local command=placebench word candidates="" current="${COMP_WORDS[COMP_CWORD]}"',
        '    for word in "${COMP_WORDS[@]:1:$((COMP_CWORD - 1))}"; do',
        f'        case "$command $word" in {known}) command="$command $word" ;; esac',
        "    done",
        '    case "$command|${COMP_WORDS[COMP_CWORD-1]}" in',
        *cases,
        "    esac",
        '    COMPREPLY=($(compgen -W "$candidates" -- "$current"))',
        "}",
        "complete -o default -F _placebench placebench",
    ]
    return "\n".join(lines)


def _fish(levels: list[_Level]) -> str:
    """Return the script for fish: a function that finds the longest command, and one line per candidate after it."""
    known = " ".join(f'"{each.words}"' for each in levels)
    lines = [
        "function __placebench_at",
        "    set -l command placebench",
        "    for word in (commandline -opc)[2..-1]",
        f'        if contains -- "$command $word" {known}',
        '            set command "$command $word"',
        "        end",
        "    end",
        '    test "$command" = "$argv[1]"',
        "end",
    ]
    for each in levels:
        start = f"complete -c placebench -n '__placebench_at \"{each.words}\"'"
        if any(other.words.rpartition(" ")[0] == each.words for other in levels):
            lines.append(f"{start} -f")
        for name in each.candidates:
            if name.startswith("--"):
                values = f" -x -a '{' '.join(each.choices[name])}'" if name in each.choices else ""
                lines.append(f"{start} -l {name[2:]}{values}")
            elif name.startswith("-"):
                lines.append(f"{start} -s {name[1:]}")
            else:
                lines.append(f"{start} -a {name}")
    return "\n".join(lines)
