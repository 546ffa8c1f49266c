"""Whether a llama.cpp program lets the engine repack weights for its faster kernels, as its own arguments and environment say.

On unless told otherwise. llama-bench gives its option numbers, several with commas: one that is off is off for all, since slots are
made once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_ON, _OFF = "--repack", ("-nr", "--no-repack")
_VARIABLE, _NEGATED = "LLAMA_ARG_REPACK", "LLAMA_ARG_NO_REPACK"
_FALSE = ("off", "disabled", "false", "0")


def repacks(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether weights are repacked; the last argument that says so counts, then the environment."""
    found: bool | None = None
    for index, argument in enumerate(arguments):
        option, _, joined = argument.partition("=") if argument.startswith("--") else (argument, "", "")
        option = option.replace("_", "-")
        if option in _OFF:
            found = False
        elif option == _ON:
            value = joined or next(iter(arguments[index + 1 : index + 2]), "")
            found = not set(value.split(",")) & set(_FALSE)
    if found is not None:
        return found
    return _NEGATED not in environment and environment.get(_VARIABLE) not in _FALSE
