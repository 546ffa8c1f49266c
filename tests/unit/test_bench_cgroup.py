"""The benchmarks' memory control groups, on small fake trees of both versions: where they are made, what is written and read."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import cgroup


def fake(tmp_path: Path, kind: str, options: str, own: str) -> tuple[Path, Path]:
    """A /proc/self and the mount that it names; files appear where a kernel would have made them."""
    proc, mount = tmp_path / "proc", tmp_path / "mount"
    proc.mkdir()
    (mount / "own").mkdir(parents=True)
    (proc / "mountinfo").write_text(
        f"31 23 0:28 / /elsewhere rw - tmpfs tmpfs rw\n35 31 0:32 /outer {mount} rw,relatime shared:9 - {kind} {kind} {options}\n"
    )
    (proc / "cgroup").write_text(own)
    return proc, mount


def test_version_1_makes_groups_inside_our_own_seen_from_the_root_of_the_mount(tmp_path: Path) -> None:
    proc, mount = fake(tmp_path, "cgroup", "rw,cpu,memory", "5:pids:/other\n4:cpu,memory:/outer/own\n0::/\n")
    assert cgroup.where(proc) == (mount / "own", cgroup.V1)


def test_version_2_makes_groups_at_the_root_of_the_mount(tmp_path: Path) -> None:
    proc, mount = fake(tmp_path, "cgroup2", "rw", "0::/outer/own\n")
    (mount / "cgroup.controllers").write_text("cpu io memory\n")
    assert cgroup.where(proc) == (mount, cgroup.V2)
    with cgroup.group(None, proc) as group:
        assert group.path.parent == mount
    assert (mount / "cgroup.subtree_control").read_text() == "+memory"
    assert not group.path.exists()


@pytest.mark.parametrize("controllers", ["cpu io\n", None])
def test_without_memory_groups_the_reason_is_one_line(tmp_path: Path, controllers: str | None) -> None:
    proc, mount = fake(tmp_path, "cgroup2", "rw", "0::/\n")
    if controllers:
        (mount / "cgroup.controllers").write_text(controllers)
    with pytest.raises(cgroup.SkippedError, match="expected a mounted memory control group, found none"):
        cgroup.where(proc)


def test_a_group_that_cannot_be_made_is_skipped(tmp_path: Path) -> None:
    proc, mount = fake(tmp_path, "cgroup", "rw,memory", "4:memory:/outer/own\n")
    (mount / "own").rmdir()
    with pytest.raises(cgroup.SkippedError, match="Run it as root"), cgroup.group(2**20, proc):
        pass


@pytest.mark.parametrize(("version", "swap"), [(cgroup.V1, "4096"), (cgroup.V2, "0")])
def test_a_limit_leaves_no_swap(tmp_path: Path, version: cgroup.Version, swap: str) -> None:
    (tmp_path / version.swap).touch()
    cgroup.Group(tmp_path, version).limit(4096)
    assert (tmp_path / version.limit).read_text() == "4096"
    assert (tmp_path / version.swap).read_text() == swap


def test_version_1_numbers(tmp_path: Path) -> None:
    (tmp_path / "memory.max_usage_in_bytes").write_text("900\n")
    (tmp_path / "memory.failcnt").write_text("3\n")
    (tmp_path / "memory.memsw.failcnt").write_text("4\n")
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    (tmp_path / "memory.stat").write_text("cache 20\nrss 10\nrss_huge 5\ntotal_rss 11\n")
    group = cgroup.Group(tmp_path, cgroup.V1)
    assert (group.peak, group.n_failures, group.n_kills, group.split()) == (900, 7, 1, {"rss": 10, "cache": 20})


def test_version_2_numbers(tmp_path: Path) -> None:
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\n")
    (tmp_path / "memory.stat").write_text("anon 10\nfile 20\n")
    group = cgroup.Group(tmp_path, cgroup.V2)
    assert (group.peak, group.n_failures, group.n_kills, group.split()) == (0, 7, 1, {"rss": 10, "cache": 20})


def test_a_process_is_in_its_group_before_it_begins(tmp_path: Path) -> None:
    ended = cgroup.Group(tmp_path, cgroup.V1).run(["sh", "-c", f'test "$(cat {tmp_path}/cgroup.procs)" = $$ && echo inside'], timeout=20)
    assert (ended.code, ended.output, ended.is_late) == (0, "inside\n", False)


def test_a_process_past_its_time_is_killed(tmp_path: Path) -> None:
    ended = cgroup.Group(tmp_path, cgroup.V1).run(["sleep", "60"], timeout=0.2)
    assert (ended.code, ended.is_late) == (-9, True)
