"""Which model a program's arguments and environment name, and which file of a cache is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotpool.errors import SlotpoolError
from slotpool.exec.program_model import program_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("arguments", "environment", "path"),
    [
        (["-m", "a.gguf"], {}, "a.gguf"),
        (["--model", "a.gguf", "-ngl", "99"], {}, "a.gguf"),
        (["--model=a.gguf"], {}, "a.gguf"),
        (["--model=a=b.gguf"], {}, "a=b.gguf"),
        (["-m", "a.gguf", "-m", "a.gguf"], {}, "a.gguf"),
        (["-md", "draft.gguf", "-m", "a.gguf", "--model-draft", "draft.gguf", "--spec-draft-model", "draft.gguf"], {}, "a.gguf"),
        (["-c", "4096"], {"LLAMA_ARG_MODEL": "env.gguf"}, "env.gguf"),
        (["-m", "a.gguf"], {"LLAMA_ARG_MODEL": "env.gguf"}, "a.gguf"),
        (["-mm", "projector.gguf", "--lora", "l.gguf", "-m", "a.gguf"], {}, "a.gguf"),
        (["-m", "a,b.gguf"], {}, "a,b.gguf"),
        (["-m", "a.gguf", "-mu", "https://host/b.gguf"], {}, "a.gguf"),
    ],
)
def test_the_model_that_is_named(arguments: list[str], environment: dict[str, str], path: str) -> None:
    assert program_model(arguments, environment) == Path(path)


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        ([], {}, "found none"),
        (["-m"], {}, "found none"),
        (["-md", "draft.gguf"], {}, "found none"),
        (["-hfd", "some/draft"], {}, "found none"),
        (["-m", "a.gguf", "--model=b.gguf"], {}, 'found 2: "a.gguf", "b.gguf"'),
        (["-m", "a.gguf", "-hf", "some/where"], {}, 'found 2: "a.gguf", "some/where"'),
        (["-m", "a.gguf"], {"LLAMA_ARG_HF_REPO": "some/where"}, "found 2"),
        (["-dr", "gemma3"], {}, 'found a repository of Docker Hub ("gemma3")'),
        (["-hf", "../../etc/x"], {"HF_HOME": "/"}, "in the cache of downloads, found none"),
        (["-mu", "https://host/b.gguf?x=1"], {"LLAMA_CACHE": "/nonexistent"}, "in the cache of downloads, found none"),
    ],
)
def test_none_several_or_absent_is_an_error(arguments: list[str], environment: dict[str, str], words: str) -> None:
    with pytest.raises(SlotpoolError) as refusal:
        program_model(arguments, environment)
    assert words in str(refusal.value)


def test_several_models_of_one_argument_are_an_error(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(SlotpoolError, match="found 2"):
        program_model(["-m", f"{tmp_path}/a.gguf,{tmp_path}/b.gguf"], {})


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """A cache of one repository with several files, as downloads leave it."""
    repository = tmp_path / "models--some--where"
    snapshot = repository / "snapshots" / COMMIT
    for name in (
        "W-F16-00001-of-00002.gguf",
        "W-F16-00002-of-00002.gguf",
        "W-Q4_K_M.gguf",
        "W-Q8_0.gguf",
        "deep/W-Q5_K_M.gguf",
        "mmproj-W-Q2_K.gguf",
        "mtp-W-Q2_K.gguf",
        "readme.md",
    ):
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).touch()
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT + "\n")
    (repository / "refs" / "a-branch").write_text("f" * 40)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["-hf", "some/where"], "W-Q4_K_M.gguf"),
        (["-hf", "some/where:q8_0"], "W-Q8_0.gguf"),
        (["--hf_repo", "some/where:F16"], "W-F16-00001-of-00002.gguf"),
        (["-hfr", "some/where:Q5_K_M"], "deep/W-Q5_K_M.gguf"),
        (["-hf", "some/where", "-hff", "W-Q8_0.gguf"], "W-Q8_0.gguf"),
    ],
)
def test_a_repository_means_the_file_that_llama_cpp_would_take(hub: Path, arguments: list[str], name: str) -> None:
    expected = hub / "models--some--where" / "snapshots" / COMMIT / name
    assert program_model(arguments, {"LLAMA_CACHE": str(hub)}) == expected
    assert program_model(arguments, {"HF_HUB_CACHE": str(hub), "HOME": "/nonexistent"}) == expected


@pytest.mark.parametrize("arguments", [["-hf", "some/where:Q2_K"], ["-hf", "some/where", "-hff", "other.gguf"], ["-hf", "no/where"]])
def test_what_is_not_in_the_cache_is_an_error(hub: Path, arguments: list[str]) -> None:
    with pytest.raises(SlotpoolError, match="in the cache of downloads, found none"):
        program_model(arguments, {"LLAMA_CACHE": str(hub)})


def test_a_repository_without_the_default_quants_gives_its_first_model(hub: Path) -> None:
    snapshot = hub / "models--some--where" / "snapshots" / COMMIT
    for name in ("W-Q4_K_M.gguf", "W-Q8_0.gguf"):
        (snapshot / name).unlink()
    assert program_model(["-hf", "some/where"], {"LLAMA_CACHE": str(hub)}) == snapshot / "W-F16-00001-of-00002.gguf"


def test_a_url_means_its_downloaded_file(tmp_path: Path) -> None:
    (tmp_path / "llama.cpp").mkdir()
    (tmp_path / "llama.cpp" / "b.gguf").touch()
    found = program_model(["-mu", "https://host/x/b.gguf?download=true"], {"XDG_CACHE_HOME": str(tmp_path)})
    assert found == tmp_path / "llama.cpp" / "b.gguf"
