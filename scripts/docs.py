"""Computes the documents that can be computed: docs/cli.md and the code map in ARCHITECTURE.md.

`python scripts/docs.py` writes them; tests/unit/test_docs.py fails when they are not what this would write.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click

from slotpool.cli import VERBS, cli

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- map: written by scripts/docs.py -->", "<!-- end of map -->"
MAPPED = ("core", "src/slotpool", "testkit", "benchmarks", "training", "scripts")
_WIDTH = 100


def cli_page() -> str:
    """docs/cli.md: the help of every verb."""
    parts = ["# The command line\n\nWritten by `scripts/docs.py` from the help of the verbs.\n"]
    with click.Context(cli, info_name="slotpool", terminal_width=_WIDTH, max_content_width=_WIDTH, **cli.context_settings) as parent:
        parts.append(f"## slotpool\n\n```\n{cli.get_help(parent)}\n```\n")
        for verb in VERBS:
            command = cli.get_command(parent, verb)
            assert command is not None
            with click.Context(command, info_name=verb, parent=parent, terminal_width=_WIDTH, max_content_width=_WIDTH) as ctx:
                parts.append(f"## slotpool {verb}\n\n```\n{command.get_help(ctx)}\n```\n")
    return "\n".join(parts)


def architecture_page() -> str:
    """ARCHITECTURE.md with its map brought up to date."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    head, rest = page.split(BEGIN)
    return head + BEGIN + "\n" + code_map() + END + rest.split(END)[1]


def code_map() -> str:
    """A line per file: its path and the first sentence it says about itself."""
    lines = []
    for top in MAPPED:
        lines.append(f"\n| {top}/ | |\n|---|---|")
        lines.extend(f"| `{path.relative_to(ROOT / top)}` | {purpose(path)} |" for path in _files(ROOT / top))
    return "\n".join(lines) + "\n"


def purpose(path: Path) -> str:
    """The first sentence of a module's docstring or of a C++ file's leading comment."""
    text = path.read_text(errors="replace")
    if path.suffix == ".py":
        said = ast.get_docstring(ast.parse(text)) or ""
    else:
        said = "\n".join(line.lstrip("/# ") for line in _leading_comment(text))
    first = re.split(r"(?<=[.])\s|\n\n", said.strip(), maxsplit=1)[0]
    return " ".join(first.split()).replace("|", "\\|")


def _leading_comment(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if not line.startswith("#!")]
    end = next((i for i, line in enumerate(lines) if not line.startswith(("//", "# "))), len(lines))
    return lines[:end]


def _files(top: Path) -> list[Path]:
    found = [path for path in sorted(top.rglob("*")) if path.suffix in (".py", ".h", ".cpp", ".sh") and "__pycache__" not in path.parts]
    # a source whose header speaks for it is not listed twice
    return [path for path in found if not (path.suffix == ".cpp" and path.with_suffix(".h").exists())]


if __name__ == "__main__":
    (ROOT / "docs" / "cli.md").write_text(cli_page())
    (ROOT / "ARCHITECTURE.md").write_text(architecture_page())
