"""What a llama.cpp program's own arguments and environment say about one option: the last that is given, or its variable.

Knows no option by itself, and takes nothing away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """An option's spellings, and the variable that stands for it where it is not given."""

    names: tuple[str, ...]
    variable: str


def values(arguments: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """The values of an option in its order, in both spellings: `--fit off` and `--fit=off`. Programs take _ for - in long options."""
    for index, argument in enumerate(arguments):
        option, is_joined, joined = argument.partition("=") if argument.startswith("--") else (argument, "", "")
        if option.replace("_", "-") not in names:
            continue
        if is_joined:
            yield joined
        elif index + 1 < len(arguments):
            yield arguments[index + 1]


def value(option: Option, arguments: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """What the program will take for `option`; None where nobody says."""
    given = list(values(arguments, option.names))
    return given[-1] if given else environment.get(option.variable)
