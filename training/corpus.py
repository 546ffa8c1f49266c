"""Two kinds of text with a clear licence: prose (King James Bible) and code (Python's standard library).

Reads Debian's `bible` command and the running interpreter's sources. It does not tokenise; it never uses the network.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

KINDS = ("prose", "code")
HELD_OUT_SHARE = 0.05
SAMPLE_BYTES = 12_000
WHOLE_BIBLE = "ge1:1-rev22:21"
VERSE = re.compile(r"(\d?[A-Za-z]+)(\d+):(\d+) (.*)")

# Tests, other people's code, and files that a machine wrote: tables of codecs, of help topics, of this build's settings.
SKIPPED_FOLDERS = {
    "test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "lib-dynload", "_bundled", "encodings", "pydoc_data",
}  # fmt: skip
SKIPPED_FILES = re.compile(r"_sysconfigdata.*|stringprep|this|antigravity|entities|keyword|token|symbol")
SKIPPED_PREFIXES = ("config-",)


@dataclass(frozen=True)
class Document:
    """One book or one source file; `is_held_out` is a property of its name and of the set it belongs to."""

    kind: str
    name: str
    text: str
    is_held_out: bool = False


def build_corpus(folder: Path) -> list[Document]:
    """Writes one JSON line per document to `folder/corpus.jsonl` and returns the documents."""
    documents = [*split(read_bible()), *split(read_stdlib())]
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "corpus.jsonl", "w") as out:
        for document in documents:
            out.write(json.dumps(vars(document)) + "\n")
    return documents


def load_corpus(folder: Path) -> list[Document]:
    path = folder / "corpus.jsonl"
    if not path.exists():
        raise SystemExit(f"expected the corpus at {path}, found nothing. Run: python -m training corpus --work {folder}")
    return [Document(**json.loads(line)) for line in path.read_text().splitlines()]


def select(documents: Iterable[Document], kind: str, held_out: bool) -> list[Document]:
    return [d for d in documents if d.kind == kind and d.is_held_out == held_out]


def corpus_digest(documents: Iterable[Document]) -> str:
    digest = hashlib.sha256()
    for document in documents:
        digest.update(f"{document.kind}/{document.name}/{document.is_held_out}\n{document.text}".encode())
    return digest.hexdigest()


def split(documents: list[Document]) -> list[Document]:
    """Holds out whole documents, in the order of the hash of their names, until they make up HELD_OUT_SHARE of the bytes."""
    allowance = HELD_OUT_SHARE * sum(len(d.text) for d in documents)
    held_out: set[str] = set()
    for document in sorted(documents, key=lambda d: hashlib.sha256(f"{d.kind}/{d.name}".encode()).hexdigest()):
        if len(document.text) <= allowance:
            allowance -= len(document.text)
            held_out.add(document.name)
    return [Document(d.kind, d.name, d.text, d.name in held_out) for d in documents]


def read_bible() -> list[Document]:
    """One document per book: a verse a line, without its reference; an empty line between chapters."""
    try:
        lines = subprocess.run(["bible", "-f", WHOLE_BIBLE], capture_output=True, text=True, check=True).stdout.splitlines()
    except FileNotFoundError:
        raise SystemExit("expected the `bible` command, found none. Run: apt install bible-kjv bible-kjv-text") from None
    books: dict[str, list[str]] = {}
    for book, chapter, verse, text in (m.groups() for m in map(VERSE.fullmatch, lines) if m):
        is_new_chapter = verse == "1" and chapter != "1"
        books.setdefault(book, []).extend(["", text] if is_new_chapter else [text])
    if len(books) != 66:
        raise SystemExit(f"expected 66 books from `bible -f {WHOLE_BIBLE}`, found {len(books)}. Reinstall bible-kjv-text.")
    return [Document("prose", book, "\n".join(verses) + "\n") for book, verses in books.items()]


def read_stdlib() -> list[Document]:
    """One document per source file of the running interpreter; lines that are not plain ASCII are left out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    documents = []
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if is_wanted(relative):
            text = path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n").expandtabs(4)
            documents.append(Document("code", relative.as_posix(), "".join(ascii_lines(text))))
    return [d for d in documents if len(d.text) >= 200]


def is_wanted(path: Path) -> bool:
    folders = path.parts[:-1]
    return not (
        SKIPPED_FOLDERS.intersection(folders)
        or any(folder.startswith(SKIPPED_PREFIXES) for folder in folders)
        or SKIPPED_FILES.fullmatch(path.stem)
    )


def ascii_lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.isascii() and len(line) <= 400:
            yield re.sub(r"[^\x20-\x7e]", "", line).rstrip() + "\n"


def write_samples(documents: list[Document], folder: Path) -> None:
    """Writes `prose.txt` and `code.txt`: the beginning of a few held-out documents of each kind, on whole lines."""
    for kind in KINDS:
        chosen = sample_documents(documents, kind)
        excerpts = [whole_lines(d.text, SAMPLE_BYTES // len(chosen)) for d in chosen]
        (folder / f"{kind}.txt").write_text("\n".join(excerpts))


def sample_documents(documents: list[Document], kind: str) -> list[Document]:
    return sorted(select(documents, kind, held_out=True), key=lambda d: len(d.text), reverse=True)[:3]


def whole_lines(text: str, n_bytes: int) -> str:
    return text[: text.rfind("\n", 0, n_bytes) + 1]


def write_licence(folder: Path) -> None:
    """Copies Python's licence, which the excerpt of its source must carry."""
    source = Path(sysconfig.get_paths()["stdlib"]) / "LICENSE.txt"
    if not source.exists():
        raise SystemExit(f"expected Python's licence at {source}, found nothing. Use a CPython that ships LICENSE.txt.")
    (folder / "LICENSE-python.txt").write_text(source.read_text())
