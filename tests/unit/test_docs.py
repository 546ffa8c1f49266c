"""Documents that can be computed are what the script would write, and the README tells the truth about its commands."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from slotpool.cli import VERBS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs", ROOT / "scripts" / "docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_cli_page_is_what_the_verbs_say(docs: ModuleType) -> None:
    assert (ROOT / "docs" / "cli.md").read_text() == docs.cli_page(), "run: .venv/bin/python scripts/docs.py"


def test_code_map_is_what_the_files_say(docs: ModuleType) -> None:
    assert (ROOT / "ARCHITECTURE.md").read_text() == docs.architecture_page(), "run: .venv/bin/python scripts/docs.py"


def test_performance_page_and_readme_are_what_the_records_say(docs: ModuleType) -> None:
    assert (ROOT / "docs" / "performance.md").read_text() == docs.performance_page(), "run: .venv/bin/python scripts/docs.py"
    assert (ROOT / "README.md").read_text() == docs.readme_page(), "run: .venv/bin/python scripts/docs.py"


def test_a_stale_page_fails_the_check_and_is_named(
    docs: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stale, fresh = tmp_path / "stale.md", tmp_path / "fresh.md"
    fresh.write_text("new")
    stale.write_text("old")
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    monkeypatch.setattr(docs, "pages", lambda: {stale: "new", fresh: "new"})
    assert docs.main(["--check"]) == 1
    assert (stale.read_text(), capsys.readouterr().err) == ("old", "stale.md is not what scripts/docs.py writes. Run it.\n")
    assert docs.main([]) == 0
    assert (stale.read_text(), docs.main(["--check"])) == ("new", 0)


def test_every_file_in_the_map_says_what_it_is_for(docs: ModuleType) -> None:
    silent = [line for line in docs.code_map().splitlines() if line.startswith("| `") and line.endswith("|  |")]
    assert not silent


def test_readme_names_only_verbs_that_exist() -> None:
    blocks = re.findall(r"^```\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"^slotpool (\w+)", "".join(blocks), flags=re.MULTILINE))
    assert named
    assert named <= set(VERBS)


def test_readme_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "ARCHITECTURE.md"):
        for link in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
