"""Sizes as people write them, and the house style of errors."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slotpool.errors import MISUSED, REFUSED, SlotpoolError, nearest, printable, quoted, unknown
from slotpool.sizes import format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("17B", 17),
        ("1KiB", 1024),
        ("512MiB", 512 << 20),
        ("20GiB", 20 << 30),
        ("1.5GiB", 3 << 29),
        (" 20 GiB ", 20 << 30),
        ("20gib", 20 << 30),
        ("2TiB", 2 << 40),
        ("1kB", 1000),
        ("20GB", 20 * 10**9),
        ("0.1KiB", 102),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_size_is_read(text: str, n_bytes: int) -> None:
    assert parse_bytes(text) == n_bytes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'expected a size such as 20GiB or 512MiB, found ""'),
        ("-1GiB", 'found "-1GiB"'),
        ("1e9", "expected a size"),
        ("nan", "expected a size"),
        ("1,5GiB", "expected a size"),
        ("٣GiB", "expected a size"),
        ("9223372036854775808", "expected a size"),
        ("9" * 5000, "expected a size"),
        ("1\x1b", r'found "1\x1b"'),
        ("20G", 'unknown unit "G" in the size "20G" (valid: B, KiB, MiB, GiB, TiB, kB, MB, GB, TB) (at --rail). Write GiB'),
        ("20Gi", 'unknown unit "Gi"'),
        ("20Q", 'unknown unit "Q"'),
    ],
)
def test_what_is_no_size_is_refused(text: str, message: str) -> None:
    with pytest.raises(SlotpoolError) as caught:
        parse_bytes(text, where="--rail")
    assert message in str(caught.value)
    assert "(at --rail)" in str(caught.value)
    assert caught.value.exit_code == MISUSED


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0B"),
        (1000, "1000B"),
        (1024, "1KiB"),
        (20 << 30, "20GiB"),
        (3 << 29, "1.5GiB"),
        ((1 << 30) - 1, "1GiB"),
        ((1 << 20) - 1, "1MiB"),
        (1019, "1KiB"),
        (1018, "1018B"),
        (-1536, "-1.5KiB"),
        (5 << 50, "5120TiB"),
    ],
)
def test_size_is_shown(n_bytes: int, text: str) -> None:
    assert format_bytes(n_bytes) == text


@given(st.integers(0, 2**60))
@example(1152)
def test_shown_size_reads_back_within_its_rounding(n_bytes: int) -> None:
    # half of the last decimal shown, and the fraction of a byte that reading drops
    assert abs(parse_bytes(format_bytes(n_bytes)) - n_bytes) < n_bytes * 0.0051 + 1


def test_error_says_what_where_and_what_to_do() -> None:
    error = SlotpoolError("96 slots need 21.4GiB, the budget is 20GiB", where="--device-budget", do="Try --slots 89.", exit_code=REFUSED)
    assert str(error) == "96 slots need 21.4GiB, the budget is 20GiB (at --device-budget). Try --slots 89."
    assert error.exit_code == REFUSED
    assert str(SlotpoolError("no")) == "no"


def test_error_is_at_most_four_lines() -> None:
    assert str(SlotpoolError("a\nb\nc\nd\ne")) == "a\nb\nc\nd"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("lruk", 'unknown policy "lruk" (valid: lru, lfu, decay). Did you mean lru?'),
        ("LFU", 'unknown policy "LFU" (valid: lru, lfu, decay). Did you mean lfu?'),
        ("zzz", 'unknown policy "zzz" (valid: lru, lfu, decay)'),
        ("\x1b\n", r'unknown policy "\x1b\n" (valid: lru, lfu, decay)'),
    ],
)
def test_unknown_name_is_answered_with_the_nearest_valid_one(value: str, message: str) -> None:
    assert str(unknown("policy", value, ["lru", "lfu", "decay"])) == message


def test_nearest_is_empty_when_nothing_is_near() -> None:
    assert (nearest("x", []), nearest("dekay", ["decay", "lru"])) == ("", "decay")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("grüße \U0001f999 \u3000", "grüße \U0001f999 \u3000"),
        ("a\nb\tc\x1b[0m", "a\\nb\\tc\\x1b[0m"),
        ("\udcff", "\\xff"),
        ("\u202e\u2028", "\\u202e\\u2028"),
    ],
)
def test_text_becomes_printable(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


@given(st.text())
def test_printable_text_is_one_line_that_can_be_encoded(text: str) -> None:
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    shown.encode()


def test_quoted_text_is_cut() -> None:
    assert len(quoted("x" * 500)) == 120
