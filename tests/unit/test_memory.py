"""What memory is available: the system's word, and the control groups of this process, in fake trees and in real groups."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from slotpool import machine, native
from slotpool.cli import doctor
from slotpool.native import AvailableMemory

MIB = 2**20
GIB = 2**30
V1_UNLIMITED = 9223372036854771712
"""What version 1 says when nothing limits: the largest number of pages."""


class Tree:
    """A fake `/`: mimics /proc/self and the files of control groups, with numbers in bytes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mounts: list[str] = []
        self.groups: list[str] = []
        self.write("proc/meminfo", f"MemTotal:       33554432 kB\nMemFree:        1 kB\nMemAvailable:   {16 * GIB // 1024} kB\n")

    def write(self, path: str, text: str | bytes) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)

    def mount(self, kind: str, point: str, root: str = "/", options: str = "rw") -> None:
        fields = f"{len(self.mounts) + 30} 23 0:26 {root} {point} rw,nosuid,nodev shared:9 - {kind} {kind} {options}"
        self.mounts.append(fields)

    def v2(self, folder: str, *, limit: object, used: int = 0, high: object = "max", **stat: int) -> None:
        self.write(f"{folder}/memory.max", f"{limit}\n")
        self.write(f"{folder}/memory.high", f"{high}\n")
        self.write(f"{folder}/memory.current", f"{used}\n")
        # names that hold other names come first, so that a search for a part of a word is found out
        self.write(
            f"{folder}/memory.stat", f"anon 7\nworkingset_inactive_file 99999999999\ninactive_files 99999999999\n{lines(stat)}slab 5\n"
        )

    def v1(self, folder: str, *, limit: object, used: int = 0, **stat: int) -> None:
        self.write(f"{folder}/memory.limit_in_bytes", f"{limit}\n")
        self.write(f"{folder}/memory.usage_in_bytes", f"{used}\n")
        # the group's own numbers are not those with its children
        own = dict.fromkeys(stat, 1)
        self.write(f"{folder}/memory.stat", f"cache 3\n{lines(own)}{''.join(f'total_{name} {n}' + chr(10) for name, n in stat.items())}")

    def available(self) -> AvailableMemory:
        self.write("proc/self/mountinfo", "".join(line + "\n" for line in self.mounts))
        self.write("proc/self/cgroup", "".join(line + "\n" for line in self.groups))
        return native.available_memory(str(self.root))


def lines(stat: dict[str, int]) -> str:
    return "".join(f"{name} {n}\n" for name, n in stat.items())


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture
def unified(tree: Tree) -> Tree:
    """Version 2 alone, the process in /app."""
    tree.mount("cgroup2", "/sys/fs/cgroup")
    tree.groups.append("0::/app")
    return tree


@pytest.fixture
def legacy(tree: Tree) -> Tree:
    """Version 1 beside an empty tree of version 2, as systemd's hybrid mode mounts them; the process in /app."""
    tree.mount("cgroup", "/sys/fs/cgroup/cpu,cpuacct", options="rw,cpu,cpuacct")
    tree.mount("cgroup", "/sys/fs/cgroup/memory", options="rw,memory")
    tree.mount("cgroup2", "/sys/fs/cgroup/unified")
    tree.groups += ["9:cpu,cpuacct:/other", "4:memory:/app", "1:name=systemd:/other", "0::/other"]
    return tree


# ---- the system ----


def test_host_is_what_the_system_calls_available(tree: Tree) -> None:
    assert tree.available() == AvailableMemory(host=16 * GIB, cgroup=None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "MemTotal: 5 kB\n",
        "MemAvailable:\n",
        "MemAvailable: many kB\n",
        "MemAvailable: -5 kB\n",
        "XMemAvailable: 5 kB\n",
        "MemAvailable: 9e9\0",
    ],
)
def test_host_that_does_not_say_limits_nothing(tree: Tree, text: str) -> None:
    tree.write("proc/meminfo", text)
    assert tree.available().host is None


def test_host_number_of_too_many_digits_limits_nothing(tree: Tree) -> None:
    for digits in ("9" * 18, "9" * 19, "9" * 20, "9" * 10000):
        tree.write("proc/meminfo", f"MemAvailable: {digits} kB\n")
        assert tree.available().host is None


def test_empty_root_is_this_machine() -> None:
    found = native.available_memory()
    assert found.host is not None
    assert abs(found.host - psutil.virtual_memory().available) < 2 * GIB  # other programs take and give meanwhile
    assert found.smallest is not None
    assert found.smallest <= found.host


@pytest.mark.parametrize(
    ("host", "cgroup", "smallest"), [(None, None, None), (5, None, 5), (None, 5, 5), (4, 5, 4), (5, 4, 4), (0, None, 0), (5, 0, 0)]
)
def test_smallest_is_of_what_is_known(host: int | None, cgroup: int | None, smallest: int | None) -> None:
    assert AvailableMemory(host, cgroup).smallest == smallest


# ---- version 2 ----


def test_v2_headroom_is_limit_less_usage(unified: Tree) -> None:
    unified.v2("/sys/fs/cgroup/app", limit=GIB, used=300 * MIB)
    assert unified.available() == AvailableMemory(16 * GIB, GIB - 300 * MIB)


def test_v2_cache_that_can_go_is_room(unified: Tree) -> None:
    unified.v2("/sys/fs/cgroup/app", limit=GIB, used=900 * MIB, inactive_file=200 * MIB, active_file=100 * MIB, file_mapped=50 * MIB)
    assert unified.available().cgroup == GIB - 900 * MIB + 250 * MIB


def test_v2_code_in_use_is_no_room(unified: Tree) -> None:
    unified.v2("/sys/fs/cgroup/app", limit=GIB, used=900 * MIB, inactive_file=20 * MIB, active_file=10 * MIB, file_mapped=80 * MIB)
    assert unified.available().cgroup == GIB - 900 * MIB


def test_v2_cache_above_usage_makes_no_more_room_than_the_limit(unified: Tree) -> None:
    unified.v2("/sys/fs/cgroup/app", limit=GIB, used=MIB, inactive_file=8 * GIB)
    assert unified.available().cgroup == GIB


def test_v2_usage_above_the_limit_is_no_room(unified: Tree) -> None:
    unified.v2("/sys/fs/cgroup/app", limit=MIB, used=GIB)
    assert unified.available().cgroup == 0


def test_v2_line_above_which_processes_are_slowed_down_is_a_limit(unified: Tree) -> None:
    unified.v2("/sys/fs/cgroup/app", limit="max", high=GIB, used=MIB)
    assert unified.available().cgroup == GIB - MIB


def test_v2_max_is_no_limit(unified: Tree) -> None:
    unified.v2("/sys/fs/cgroup/app", limit="max", used=MIB)
    assert unified.available() == AvailableMemory(16 * GIB, None)


def test_v2_limits_above_hold_too_and_the_smallest_room_wins(unified: Tree) -> None:
    unified.groups[:] = ["0::/a/b/c"]
    unified.v2("/sys/fs/cgroup/a/b/c", limit="max", used=1)
    unified.v2("/sys/fs/cgroup/a/b", limit=4 * GIB, used=GIB)
    unified.v2("/sys/fs/cgroup/a", limit=8 * GIB, used=6 * GIB)
    assert unified.available().cgroup == 2 * GIB
    unified.v2("/sys/fs/cgroup", limit=GIB, used=0)  # a container's own root has files, too
    assert unified.available().cgroup == GIB


def test_v2_groups_beside_and_below_do_not_matter(unified: Tree) -> None:
    unified.v2("/sys/fs/cgroup/app", limit=4 * GIB)
    unified.v2("/sys/fs/cgroup/app/child", limit=MIB)
    unified.v2("/sys/fs/cgroup/other", limit=MIB)
    unified.v2("/app", limit=MIB)
    assert unified.available().cgroup == 4 * GIB


def test_v2_group_with_blanks_and_colons_in_its_name(unified: Tree) -> None:
    unified.groups[:] = ["0::/my app:1/run 2"]
    unified.v2("/sys/fs/cgroup/my app:1/run 2", limit=GIB)
    assert unified.available().cgroup == GIB


def test_mount_point_with_a_blank_is_unescaped(tree: Tree) -> None:
    tree.mount("cgroup2", "/mnt/my\\040groups\\134x")
    tree.groups.append("0::/app")
    tree.v2("/mnt/my groups\\x/app", limit=GIB)
    assert tree.available().cgroup == GIB


# ---- version 1 ----


def test_v1_headroom_counts_children_and_cache_that_can_go(legacy: Tree) -> None:
    legacy.v1("/sys/fs/cgroup/memory/app", limit=GIB, used=900 * MIB, inactive_file=200 * MIB, active_file=100 * MIB, mapped_file=50 * MIB)
    assert legacy.available().cgroup == GIB - 900 * MIB + 250 * MIB


def test_v1_huge_number_is_no_limit(legacy: Tree) -> None:
    legacy.v1("/sys/fs/cgroup/memory/app", limit=V1_UNLIMITED, used=GIB)
    assert legacy.available().cgroup is None


def test_v1_limits_above_hold_too(legacy: Tree) -> None:
    legacy.groups[1] = "4:memory:/a/b"
    legacy.v1("/sys/fs/cgroup/memory/a/b", limit=V1_UNLIMITED)
    legacy.v1("/sys/fs/cgroup/memory/a", limit=2 * GIB, used=GIB)
    legacy.v1("/sys/fs/cgroup/memory", limit=V1_UNLIMITED)
    assert legacy.available().cgroup == GIB


def test_v1_other_controllers_are_not_asked(legacy: Tree) -> None:
    legacy.v1("/sys/fs/cgroup/cpu,cpuacct/other", limit=MIB)
    legacy.v1("/sys/fs/cgroup/cpu,cpuacct/app", limit=MIB)
    legacy.v1("/sys/fs/cgroup/memory/other", limit=MIB)
    assert legacy.available().cgroup is None


def test_v1_memory_controller_that_shares_its_tree_is_found(tree: Tree) -> None:
    tree.mount("cgroup", "/sys/fs/cgroup/mixed", options="rw,cpu,memory,pids")
    tree.groups.append("4:cpu,memory,pids:/app")
    tree.v1("/sys/fs/cgroup/mixed/app", limit=GIB)
    assert tree.available().cgroup == GIB


def test_both_versions_are_asked_and_the_smaller_room_wins(legacy: Tree) -> None:
    legacy.v1("/sys/fs/cgroup/memory/app", limit=4 * GIB)
    legacy.v2("/sys/fs/cgroup/unified/other", limit=GIB)
    assert legacy.available().cgroup == GIB


# ---- containers: what is mounted is not the root of the tree ----


def test_mount_of_the_process_own_group(tree: Tree) -> None:
    tree.mount("cgroup", "/sys/fs/cgroup/memory", root="/docker/abc", options="rw,memory")
    tree.groups.append("4:memory:/docker/abc")
    tree.v1("/sys/fs/cgroup/memory", limit=GIB, used=MIB)
    tree.v1("/sys/fs/cgroup/memory/docker/abc", limit=MIB)  # inside it, this would be somebody else's
    assert tree.available().cgroup == GIB - MIB


def test_mount_of_a_group_above(tree: Tree) -> None:
    tree.mount("cgroup2", "/sys/fs/cgroup", root="/docker/abc")
    tree.groups.append("0::/docker/abc/worker")
    tree.v2("/sys/fs/cgroup", limit=2 * GIB)
    tree.v2("/sys/fs/cgroup/worker", limit=GIB)
    assert tree.available().cgroup == GIB


def test_mount_of_a_group_whose_name_only_begins_alike_is_not_above(tree: Tree) -> None:
    tree.mount("cgroup2", "/elsewhere", root="/docker/ab")
    tree.mount("cgroup2", "/sys/fs/cgroup")
    tree.groups.append("0::/docker/abc")
    tree.v2("/elsewhere", limit=MIB)
    tree.v2("/elsewhere/c", limit=MIB)
    tree.v2("/sys/fs/cgroup/docker/abc", limit=GIB)
    assert tree.available().cgroup == GIB


def test_mount_from_outside_of_the_namespace_is_taken_as_it_is_shown(tree: Tree) -> None:
    tree.mount("cgroup2", "/sys/fs/cgroup", root="/../..")
    tree.groups.append("0::/")
    tree.v2("/sys/fs/cgroup", limit=GIB)
    assert tree.available().cgroup == GIB


def test_group_outside_of_the_namespace_is_not_looked_for_outside_of_the_mount(tree: Tree) -> None:
    tree.mount("cgroup2", "/sys/fs/cgroup")
    tree.groups.append("0::/../other")
    tree.v2("/sys/fs/other", limit=MIB)
    tree.v2("/sys/fs/cgroup", limit="max")
    assert tree.available().cgroup is None


# ---- garbage ----


def test_missing_files_limit_nothing(tmp_path: Path) -> None:
    assert native.available_memory(str(tmp_path)) == AvailableMemory(None, None)
    assert native.available_memory(str(tmp_path / "nowhere")) == AvailableMemory(None, None)


@pytest.mark.parametrize("missing", ["memory.max", "memory.current"])
def test_group_without_a_limit_or_without_usage_limits_nothing(unified: Tree, missing: str) -> None:
    unified.v2("/sys/fs/cgroup/app", limit=GIB, used=MIB)
    (unified.root / "sys/fs/cgroup/app" / missing).unlink()
    assert unified.available().cgroup is None


def test_group_without_statistics_has_no_cache_that_can_go(unified: Tree) -> None:
    unified.v2("/sys/fs/cgroup/app", limit=GIB, used=MIB)
    (unified.root / "sys/fs/cgroup/app/memory.stat").unlink()
    assert unified.available().cgroup == GIB - MIB


@pytest.mark.parametrize("text", ["", "\n", "-1\n", "x", " 5\n", "9" * 30, "18446744073709551615\n", b"\xff\xfe\0"])
def test_limit_that_is_no_number_limits_nothing(unified: Tree, text: str | bytes) -> None:
    unified.v2("/sys/fs/cgroup/app", limit=GIB)
    unified.write("/sys/fs/cgroup/app/memory.max", text)
    assert unified.available().cgroup is None


@pytest.mark.parametrize(
    "stat", [b"", b"\0" * 9000, b"inactive_file\nactive_file \nfile_mapped x\n", b"inactive_file 99999999999999999999999\n"]
)
def test_statistics_that_are_garbage_make_no_room(unified: Tree, stat: bytes) -> None:
    unified.v2("/sys/fs/cgroup/app", limit=GIB, used=MIB)
    unified.write("/sys/fs/cgroup/app/memory.stat", stat)
    assert unified.available().cgroup == GIB - MIB


def test_sums_do_not_overflow(unified: Tree) -> None:
    most = 2**63 - 1
    unified.v2("/sys/fs/cgroup/app", limit=GIB, used=most, inactive_file=most, active_file=most, file_mapped=most)
    assert unified.available().cgroup == GIB  # everything in use is cache that can go


@pytest.mark.parametrize("line", ["", ":", "::", "0:", "0::", "0::app", "4:memory:", "x" * 100000, "\0\0\0", "4:memory"])
def test_cgroup_lines_that_are_garbage_are_passed_over(unified: Tree, line: str) -> None:
    unified.v2("/sys/fs/cgroup/app", limit=GIB)
    unified.groups.insert(0, line)
    assert unified.available().cgroup == GIB


@pytest.mark.parametrize(
    "line", ["", "-", "- cgroup2 x y", "1 2 3 / /sys/fs/cgroup", "1 2 3 / /x rw - cgroup2", "\\", "1 2 3 \\0 \\04 - a b c", "\0"]
)
def test_mount_lines_that_are_garbage_are_passed_over(unified: Tree, line: str) -> None:
    unified.v2("/sys/fs/cgroup/app", limit=GIB)
    unified.mounts.insert(0, line)
    assert unified.available().cgroup == GIB


def test_group_of_many_levels_ends(unified: Tree) -> None:
    unified.groups[:] = ["0::" + "/x" * 100000]
    unified.v2("/sys/fs/cgroup", limit=GIB)
    assert unified.available().cgroup == GIB


def test_endless_file_ends(unified: Tree) -> None:
    unified.v2("/sys/fs/cgroup/app", limit=GIB, used=MIB)
    stat = unified.root / "sys/fs/cgroup/app/memory.stat"
    stat.unlink()
    stat.symlink_to("/dev/zero")
    assert unified.available().cgroup == GIB - MIB


def test_folder_instead_of_a_file_limits_nothing(unified: Tree) -> None:
    (unified.root / "sys/fs/cgroup/app/memory.max").mkdir(parents=True)
    assert unified.available().cgroup is None


# ---- machine and doctor say which one limits ----


@pytest.mark.parametrize(
    ("host", "cgroup", "available", "by"), [(8, None, 8, "system"), (8, 5, 5, "cgroup"), (8, 9, 8, "system"), (8, 0, 0, "cgroup")]
)
def test_machine_says_what_is_available_and_what_limits(
    monkeypatch: pytest.MonkeyPatch, host: int, cgroup: int | None, available: int, by: str
) -> None:
    monkeypatch.setattr(native, "available_memory", lambda: AvailableMemory(host, cgroup))
    found = machine.read()
    assert (found.ram_available, found.ram_limited_by, found.ram_system, found.ram_cgroup) == (available, by, host, cgroup)
    assert found.ram_total == psutil.virtual_memory().total


def test_machine_of_a_system_that_does_not_say_is_what_psutil_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "available_memory", lambda: AvailableMemory(None, None))
    assert machine.read().ram_available > 0


def test_machine_can_be_read_without_a_core(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    native.library.load.cache_clear()
    monkeypatch.setattr(native.library, "CORE_PATH", tmp_path / "none.so")
    try:
        assert machine.read().ram_limited_by == "system"
    finally:
        native.library.load.cache_clear()


def test_doctor_names_the_control_group_that_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "available_memory", lambda: AvailableMemory(8 * GIB, GIB))
    text = CliRunner().invoke(doctor.command, []).output
    assert "1GiB available of" in text
    assert "a control group limits it; the system has 8GiB" in text
    document = json.loads(CliRunner().invoke(doctor.command, ["--json"]).output)
    assert document["machine"]["ram_cgroup"] == document["machine"]["ram_available"] == GIB
    assert document["machine"]["ram_limited_by"] == "cgroup"


def test_doctor_does_not_speak_of_control_groups_that_do_not_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "available_memory", lambda: AvailableMemory(8 * GIB, None))
    assert "control group" not in CliRunner().invoke(doctor.command, []).output


# ---- a real group ----

_V1 = Path("/sys/fs/cgroup/memory")
_ASK = """
import os, sys
folder, needed = sys.argv[1], int(sys.argv[2])
open(folder + "/cgroup.procs", "w").write(str(os.getpid()))
from slotpool import native
held = bytearray(needed)
for i in range(0, needed, 4096):
    held[i] = 1
print(native.available_memory().cgroup)
"""


def make_group() -> tuple[Path, str]:
    """A control group below the process's own, and the file of its limit."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return (_V1 / path.strip("/") / f"slotpool-test-{uuid.uuid4().hex[:8]}"), "memory.limit_in_bytes"
    return Path("/sys/fs/cgroup") / f"slotpool-test-{uuid.uuid4().hex[:8]}", "memory.max"


@pytest.fixture
def real_group() -> Iterator[tuple[Path, int]]:
    folder, limit = make_group()
    n_bytes = 512 * MIB
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error.strerror}")
    try:
        try:
            (folder / limit).write_text(str(n_bytes))
        except OSError as error:
            pytest.skip(f"the memory controller cannot be used here: {error.strerror}")
        yield folder, n_bytes
    finally:
        folder.rmdir()


@pytest.mark.parametrize("held", [0, 128 * MIB])
def test_process_in_a_limited_group_sees_the_room_that_is_left(real_group: tuple[Path, int], held: int) -> None:
    folder, n_bytes = real_group
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    asked = subprocess.run(
        [sys.executable, "-c", _ASK, str(folder), str(held)], env=environment, capture_output=True, text=True, check=False
    )
    assert asked.returncode == 0, asked.stderr
    left = int(asked.stdout)
    assert left <= n_bytes - held
    assert left > n_bytes - held - 64 * MIB  # Python itself takes some
