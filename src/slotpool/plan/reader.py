"""Reads a plan file back: what `text` writes and the core takes, with the core's own bounds and words (`core/plan/plan.cpp`).

Opens no model: what a plan does not say of a tensor (type and shape) stays empty, until `bind` finds it in its model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from slotpool.errors import SlotpoolError, printable
from slotpool.model import ExpertTensor
from slotpool.plan.facts import (
    DYNAMIC,
    EXPLICIT,
    MISSES,
    PREFILL,
    WHOLE,
    Group,
    Off,
    Plan,
    PlannedDevice,
    PlannedFile,
    PlannedMemory,
)
from slotpool.profile import Pin

MAX_BYTES = 16 << 20
"""Of a plan file."""
_MAX_COUNT = 1 << 16
"""Of experts, layers, files."""
_MAX_SLAB_BYTES = 1 << 40
_MAX_SIZE = 1 << 62
_MAX_PATH_BYTES = 4096
_MAX_DEVICES = 6
_MAX_QUOTED = 80
_MILLION = 1_000_000
_WORD = re.compile(r"[^ \t\r\v\f]+")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_POLICIES = ("lru", "decay", "follow")


@dataclass(frozen=True)
class PlanFile:
    """A plan as it was read, and the path of the report it asks for; empty: none."""

    plan: Plan
    report: str = ""


def read_plan(path: str | os.PathLike[str]) -> PlanFile:
    """The plan file at `path`. Raises SlotpoolError, with the line, for what is no plan; nothing larger than MAX_BYTES is read."""
    try:
        with Path(path).open("rb") as file:
            found = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SlotpoolError(f"cannot read the plan file: {error.strerror}", where=printable(path)) from error
    return from_text(found, where=printable(path))


def from_text(data: bytes | str, *, where: str = "the plan") -> PlanFile:
    """What the text says; paths as this system spells them. Raises SlotpoolError as `read_plan` does."""
    text = data if isinstance(data, str) else data.decode("utf-8", "surrogateescape")
    if len(data) > MAX_BYTES:
        raise SlotpoolError("expected a plan of at most 16 MiB, found more", where=where)
    return _Reader(where).read(text)


@dataclass
class _Statement:
    line: str
    words: list[str]

    def rest(self, index: int) -> str:
        """The line from word `index` on, as it is."""
        match = list(_WORD.finditer(self.line))[index : index + 1]
        return self.line[match[0].start() :] if match else ""


@dataclass
class _Reader:
    where: str
    plan: Plan = field(default_factory=lambda: Plan(policy="decay"))
    report: str = ""
    line_number: int = 0
    names: set[str] = field(default_factory=set)
    groups: list[Group] = field(default_factory=list)
    tensors: list[list[ExpertTensor]] = field(default_factory=list)
    biases: list[list[str]] = field(default_factory=list)
    off_: list[Off] = field(default_factory=list)
    files: list[PlannedFile] = field(default_factory=list)

    def read(self, text: str) -> PlanFile:
        lines = text.split("\n")
        is_begun = False
        for line in lines if lines[-1] else lines[:-1]:
            self.line_number += 1
            first = _WORD.search(line)
            if first is None or line[first.start()] == "#":
                continue
            statement = _Statement(line, _WORD.findall(line))
            is_begun = (self.statement if is_begun else self.header)(statement) or True
        if not is_begun:
            raise self.fail('"slotpool-plan 1"', "no such line")
        return PlanFile(self.finished(), self.report)

    def finished(self) -> Plan:
        parts = zip(self.groups, self.tensors, self.biases, strict=True)
        groups = tuple(replace(group, tensors=tuple(tensors), biases=tuple(biases)) for group, tensors, biases in parts)
        return replace(self.plan, groups=groups, off=tuple(self.off_), files=tuple(self.files))

    def fail(self, expected: str, found: str) -> SlotpoolError:
        return SlotpoolError(f"expected {expected}, found {found}", where=f"{self.where}, line {self.line_number}")

    # ---- statements ----

    def header(self, one: _Statement) -> None:
        if len(one.words) != 2 or one.words[0] != "slotpool-plan":
            raise self.fail('"slotpool-plan 1"', _quoted(one.line))
        if one.words[1] != "1":
            raise self.fail("plan version 1", f"version {_quoted(one.words[1])}")

    def statement(self, one: _Statement) -> None:
        read = _STATEMENTS.get(one.words[0])
        if read is None:
            raise self.fail(f"a statement ({', '.join(_STATEMENTS)})", _quoted(one.words[0]))
        read(self, one)

    def policy(self, one: _Statement) -> None:
        words = one.words
        if len(words) not in (2, 3) or words[1] not in _POLICIES:
            expected = "policy lru, policy decay [DECAY] or policy follow [DECAY]"
            raise self.fail(expected, "no name" if len(words) < 2 else _quoted(one.line))
        self.plan = replace(self.plan, policy=words[1])
        if len(words) == 3:
            decay = float(words[2]) if _DECIMAL.fullmatch(words[2]) else 0.0
            if not 0.0 < decay <= 1.0:
                raise self.fail("a decay above 0 and at most 1", _quoted(words[2]))
            self.plan = replace(self.plan, decay=decay)

    def repack(self, one: _Statement) -> None:
        self.plan = replace(self.plan, is_repacked=self.one_of(one, "repack", ("on", "off")) == "on")

    def bypass(self, one: _Statement) -> None:
        self.plan = replace(self.plan, is_bypassed=self.one_of(one, "bypass", ("on", "off")) == "on")

    def poison(self, one: _Statement) -> None:
        self.plan = replace(self.plan, poison=self.one_of(one, "poison", ("on", "off")) == "on")

    def contexts(self, one: _Statement) -> None:
        self.plan = replace(self.plan, contexts=self.one_of(one, "contexts", ("all", "first")))

    def misses(self, one: _Statement) -> None:
        words = one.words
        has_way = len(words) == 3 and words[2] in ("background", "settled")
        if len(words) not in (2, 3) or words[1] not in MISSES or (len(words) == 3 and not has_way):
            raise self.fail("misses copy|cpu|auto|frozen [background|settled]", _quoted(one.line))
        self.plan = replace(self.plan, misses=words[1], is_settled=words[2:] == ["settled"])

    def prefill(self, one: _Statement) -> None:
        if len(one.words) != 2 or one.words[1] not in PREFILL:
            raise self.fail("prefill bypass|stream|auto", _quoted(one.line))
        self.plan = replace(self.plan, prefill=one.words[1])

    def device(self, one: _Statement) -> None:
        self.fields(one, 5, "device NAME slots= budget= rail=")
        name, devices = one.words[1], self.plan.devices
        if self.groups:
            raise self.fail("devices before groups", "a device")
        if len(devices) == _MAX_DEVICES:
            raise self.fail("at most 6 devices", "another")
        if name in ("CPU", "auto"):
            raise self.fail("the name of a device other than the CPU", _quoted(name))
        if name in (device.name for device in devices):
            raise self.fail("each device once", f"{_quoted(name)} again")
        slots = self.number(one.words[2], "slots", 0, _MAX_COUNT)
        made = PlannedDevice(name, slots, self.bytes_or_auto(one.words[3], "budget"), self.bytes_or_auto(one.words[4], "rail"))
        self.plan = replace(self.plan, devices=(*devices, made))

    def memory(self, one: _Statement) -> None:
        self.fields(one, 4, "memory budget= rail= reserve=")
        if self.plan.memory:
            raise self.fail("one line for memory", "another")
        budget, rail = self.bytes_or_auto(one.words[1], "budget"), self.bytes_or_auto(one.words[2], "rail")
        self.plan = replace(self.plan, memory=PlannedMemory(budget, rail, self.number(one.words[3], "reserve", 0, _MAX_SIZE)))

    def file(self, one: _Statement) -> None:
        self.fields(one, 5, "file INDEX size= mtime= path=", at_least=True)
        if any(self.tensors):
            raise self.fail("files before tensors", "a file")
        if len(self.files) == _MAX_COUNT:
            raise self.fail("at most 65536 files", "another")
        index = len(self.files)
        if one.words[1] != str(index):
            raise self.fail(f"file {index}", f"file {_quoted(one.words[1])}")
        size = self.number(one.words[2], "size", 0, _MAX_SIZE)
        mtime_ns = self.number(one.words[3], "mtime", -(1 << 63), (1 << 63) - 1)
        self.files.append(PlannedFile(self.path(one.rest(4)), size, mtime_ns, index))

    def group(self, one: _Statement) -> None:
        words = one.words
        if len(words) not in (6, 7):
            raise self.fail("group layer= pass= device= slots= n_expert= [claim=]", f"{len(words) - 1} fields")
        layer = self.number(words[1], "layer", 0, _MAX_COUNT)
        pass_, device = self.text(words[2], "pass"), self.text(words[3], "device")
        slots = self.number(words[4], "slots", 1 if device == "CPU" else 0, _MAX_COUNT)
        n_expert = self.number(words[5], "n_expert", 1, _MAX_COUNT)
        known = {one.name for one in self.plan.devices}
        if device != "CPU" and device not in known and not (device == "auto" and known):
            raise self.fail("CPU, auto or a device that has a line of its own", f"device {_quoted(device)}")
        if slots > n_expert:
            raise self.fail("at most n_expert slots", f"{slots} slots for {n_expert} experts")
        claim = words[6].removeprefix("claim=") if len(words) == 7 else DYNAMIC
        if len(words) == 7 and words[6] not in (f"claim={WHOLE}", f"claim={EXPLICIT}"):
            raise self.fail("claim=whole or claim=explicit", _quoted(words[6]))
        self.groups.append(Group(layer, pass_, device, slots, n_expert, (), claim=claim))
        self.tensors.append([])
        self.biases.append([])

    def tensor(self, one: _Statement) -> None:
        if not self.groups:
            raise self.fail("a group before its tensors", "a tensor")
        if len(one.words) not in (4, 6):
            raise self.fail("tensor NAME role= slab= [file= offset=]", f"{len(one.words) - 1} fields")
        name, group = one.words[1], self.groups[-1]
        role = self.text(one.words[2], "role")
        slab = self.number(one.words[3], "slab", 1, _MAX_SLAB_BYTES)
        shard, offset = self.place(one.words, name, slab * group.n_expert)
        self.once(name)
        ne = (0, 0, group.n_expert, 1)
        made = ExpertTensor(name, group.layer, role, "", ne, group.n_expert, slab, shard, offset, slab * group.n_expert)
        self.tensors[-1].append(made)

    def bias(self, one: _Statement) -> None:
        if len(one.words) != 2:
            raise self.fail("bias NAME", _quoted(one.line))
        if not self.groups:
            raise self.fail("a group before its biases", "a bias")
        self.once(one.words[1])
        self.biases[-1].append(one.words[1])

    def off(self, one: _Statement) -> None:
        if len(one.words) < 3:
            raise self.fail("off NAME REASON", _quoted(one.line))
        self.off_.append(Off(one.words[1], one.rest(2)))

    def warm(self, one: _Statement) -> None:
        if not self.groups:
            raise self.fail("a group before what it begins with", "warm")
        group = self.groups[-1]
        if len(one.words) < 2 or group.warm:
            raise self.fail("one line of experts for a group", "none" if len(one.words) < 2 else "another")
        if len(one.words) - 1 > group.n_expert:
            raise self.fail("at most n_expert experts", str(len(one.words) - 1))
        found: dict[int, int] = {}
        most = _MILLION
        for word in one.words[1:]:
            expert, most = self.expected(word, group.n_expert, most)
            if expert in found:
                raise self.fail("each expert once", f"{expert} again")
            found[expert] = most
        self.groups[-1] = replace(group, warm=tuple(found.items()))

    def expected(self, word: str, n_expert: int, most: int) -> tuple[int, int]:
        expert, colon, millionths = word.partition(":")
        if not colon:
            raise self.fail("EXPERT:MILLIONTHS", _quoted(word))
        known = self.whole(expert, "an expert", 0, n_expert - 1)
        return known, self.whole(millionths, "millionths, the hottest first,", 0, most)

    def pin(self, one: _Statement) -> None:
        self.fields(one, 4, "pin share= slots= spare=")
        if self.plan.pin:
            raise self.fail("one line of pins", "another")
        limits = (("share", 0, _MILLION), ("slots", 0, _MAX_COUNT), ("spare", 1, _MAX_COUNT))
        self.plan = replace(self.plan, pin=Pin(*(self.number(word, *limit) for word, limit in zip(one.words[1:], limits, strict=True))))

    def heat(self, one: _Statement) -> None:
        self.plan = replace(self.plan, has_heat_report=self.one_of(one, "heat", ("on", "off")) == "on")

    def asked_report(self, one: _Statement) -> None:
        if self.report:
            raise self.fail("one line for the report", "another")
        self.report = self.path(one.rest(1))

    # ---- fields ----

    def fields(self, one: _Statement, n: int, expected: str, *, at_least: bool = False) -> None:
        found = len(one.words)
        if found < n or (found > n and not at_least):
            raise self.fail(expected, f"{found - 1} fields")

    def one_of(self, one: _Statement, name: str, values: Sequence[str]) -> str:
        if len(one.words) != 2 or one.words[1] not in values:
            raise self.fail(" or ".join(f"{name} {value}" for value in values), _quoted(one.line))
        return one.words[1]

    def once(self, name: str) -> None:
        if name in self.names:
            raise self.fail("each tensor once", f"{_quoted(name)} again")
        self.names.add(name)

    def place(self, words: Sequence[str], name: str, n_bytes: int) -> tuple[int, int]:
        """(file, offset) of expert 0; all tensors have a file, or none has."""
        if len(words) == 4:
            if self.files:
                raise self.fail("a file for every tensor", f"none for {_quoted(name)}")
            return 0, 0
        if not self.files:
            raise self.fail("files before a tensor with a file", "none")
        index = self.number(words[4], "file", 0, len(self.files) - 1)
        offset = self.number(words[5], "offset", 0, _MAX_SIZE)
        if offset + n_bytes > self.files[index].size:
            raise self.fail("experts inside their file", f"their end at byte {offset + n_bytes} of {self.files[index].size}")
        return index, offset

    def path(self, rest: str) -> str:
        if not rest.startswith("path="):
            raise self.fail("path=", _quoted(rest))
        found = rest.removeprefix("path=").encode("utf-8", "surrogateescape")
        if not 1 <= len(found) <= _MAX_PATH_BYTES:
            raise self.fail("a path of 1 to 4096 bytes", f"{len(found)} bytes")
        if any(byte < 0x20 or byte == 0x7F for byte in found):
            raise self.fail("a path without control characters", _quoted(rest.removeprefix("path=")))
        return os.fsdecode(found)

    def bytes_or_auto(self, word: str, key: str) -> int | None:
        return None if word == f"{key}=auto" else self.number(word, key, 0, _MAX_SIZE)

    def text(self, word: str, key: str) -> str:
        value = word.removeprefix(f"{key}=")
        if value in (word, ""):
            raise self.fail(f"{key}=", _quoted(word))
        return value

    def number(self, word: str, key: str, low: int, high: int) -> int:
        return self.whole(self.text(word, key), key, low, high)

    def whole(self, digits: str, what: str, low: int, high: int) -> int:
        value = int(digits) if _WHOLE.fullmatch(digits) and len(digits) < _MAX_QUOTED else None
        if value is None or not low <= value <= high:
            raise self.fail(f"{what} from {low} to {high}", _quoted(digits))
        return value


_STATEMENTS: dict[str, Callable[[_Reader, _Statement], None]] = {
    "policy": _Reader.policy,
    "poison": _Reader.poison,
    "bypass": _Reader.bypass,
    "repack": _Reader.repack,
    "misses": _Reader.misses,
    "prefill": _Reader.prefill,
    "contexts": _Reader.contexts,
    "device": _Reader.device,
    "memory": _Reader.memory,
    "file": _Reader.file,
    "group": _Reader.group,
    "tensor": _Reader.tensor,
    "bias": _Reader.bias,
    "off": _Reader.off,
    "warm": _Reader.warm,
    "pin": _Reader.pin,
    "heat": _Reader.heat,
    "report": _Reader.asked_report,
}
"""In the order in which the core names them."""


def _quoted(found: str) -> str:
    """As the core quotes: whatever is not plain ASCII is a question mark, and no more than a line of it."""
    raw = found.encode("utf-8", "surrogateescape")
    text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "?" for byte in raw[:_MAX_QUOTED])
    return f'"{text}..."' if len(raw) > _MAX_QUOTED else f'"{text}"'
