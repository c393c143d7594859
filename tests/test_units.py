"""Amounts with units: what is read, exactly, what is refused, and what people see."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from fractions import Fraction

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from symacct.dim import symbol
from symacct.errors import SymacctError, UnitError
from symacct.units import read, show

READ = [
    ("80 GB", "byte", 80 * 10**9),
    ("80GB", "byte", 80 * 10**9),
    (" 80  GB ", "byte", 80 * 10**9),
    ("80 GiB", "byte", 80 * 2**30),
    ("1,000 kB", "byte", 10**6),
    ("1 KB", "byte", 1000),
    (".5 GB", "byte", 5 * 10**8),
    ("2e3 MB", "byte", 2 * 10**9),
    ("80e9", "byte", 80 * 10**9),
    ("0.1 B", "byte", 0.1),
    ("100 Gbit/s", "byte/second", 12_500_000_000),
    ("100 Gbps", "byte/second", 12_500_000_000),
    ("3.35 TB/s", "byte/second", 3_350_000_000_000),
    ("3.35 TBps", "byte/second", 3_350_000_000_000),
    ("989.5 TFLOP/s", "FLOP/second", 989_500_000_000_000),
    ("989.5 TFLOPs/s", "FLOP/second", 989_500_000_000_000),
    ("989.5 TFLOPS", "FLOP/second", 989_500_000_000_000),
    ("6.3e24 FLOP", "FLOP", 63 * 10**23),
    ("6.3 YFLOP", "FLOP", 63 * 10**23),
    ("3637.5 PFLOP/s-days", "FLOP", 314_280 * 10**18),
    ("15T tokens", "token", 15 * 10**12),
    ("15T", "token", 15 * 10**12),
    ("300B tokens", "token", 300 * 10**9),
    ("4M tokens", "token", 4 * 10**6),
    ("8k", "token", 8000),
    ("70B", "", 70 * 10**9),
    ("7e9", "", 7 * 10**9),
    ("1.5M tokens/s", "token/second", 1_500_000),
    ("10 tok/s", "token/second", 10),
    ("3 days", "second", 3 * 86400),
    ("1 week", "second", 604_800),
    ("1 year", "second", 31_557_600),
    ("5 min", "second", 300),
    ("16.7 ms", "second", 0.0167),
    ("$2/h", "USD/hour", 2),
    ("2 $/hour", "USD/hour", 2),
    ("2.5 USD per hour", "USD/hour", 2.5),
    ("2 USD/GPU/h", "USD/hour", 2),
    ("$2/GPU-hour", "USD/hour", 2),
    ("$48/day", "USD/hour", 2),
    ("$5.576M", "USD", 5_576_000),
    ("500 dollars", "USD", 500),
    ("8 GPUs", "device", 8),
]


@pytest.mark.parametrize(("text", "unit", "expected"), READ)
def test_read(text, unit, expected):
    """Text with a unit is a number of the base unit: an int where it is whole."""
    found = read(text, unit)
    assert found == expected
    assert type(found) is type(expected)


REFUSED = [
    ("80 TFLOP/s", "byte", "'80 TFLOP/s' is a rate in FLOP/s; expected bytes, such as \"80 GB\""),
    ("80 GB", "FLOP", "'80 GB' is bytes; expected FLOP, such as \"3e23 FLOP\""),
    ("989 TFLOPs", "FLOP/second", "'989 TFLOPs' is FLOP; expected a rate in FLOP/s, such as \"400 TFLOP/s\""),
    ("3 days", "USD", "'3 days' is a time; expected money, such as \"500 USD\""),
    ("$2", "USD/hour", "'$2' is money; expected a price per device-hour, such as \"2.5 USD/h\""),
    ("80 GB*s", "byte", "'80 GB*s' is in gigabyte * second; expected bytes, such as \"80 GB\""),
    ("80 Gb", "byte", "'80 Gb' cannot be read; expected bytes, such as \"80 GB\""),
    ("80 G", "byte", "'80 G' cannot be read; expected bytes, such as \"80 GB\""),
    ("80 XB", "byte", None),
    ("5 m", "second", None),
    ("GB", "byte", "'GB' cannot be read; expected bytes, such as \"80 GB\""),
    ("", "byte", "'' cannot be read; expected bytes, such as \"80 GB\""),
    ("many", "", "'many' cannot be read; expected a number, such as \"7e9\""),
    ("1,5 GB", "byte", None),
    ("e5 GB", "byte", None),
    ("inf", "second", None),
    ("nan GB", "byte", None),
    ("1e400 GB", "byte", None),
    ("9**9**9", "byte", None),
    ("2^30 B", "byte", None),
    ("80 GB + 3 GB", "byte", None),
    ("__import__('os')", "byte", None),
    ("\u0665 GB", "byte", None),
    ("-5 GB", "byte", "'-5 GB' is no amount of 0 or more; expected bytes, such as \"80 GB\""),
    (-5, "byte", '-5 is no amount of 0 or more; expected bytes, such as "80 GB"'),
    (math.nan, "second", 'nan is no amount of 0 or more; expected a time, such as "3 days"'),
    (None, "byte", 'None is no amount; expected bytes, such as "80 GB"'),
    (True, "token", 'True is no amount; expected tokens, such as "15T tokens"'),
    ([80], "byte", None),
]


@pytest.mark.parametrize(("value", "unit", "message"), REFUSED)
def test_refused(value, unit, message):
    """What is of another dimension, or cannot be read, is refused with what was expected; nothing is computed."""
    with pytest.raises(UnitError) as error:
        read(value, unit, "memory")
    assert isinstance(error.value, SymacctError)
    assert str(error.value).startswith(f"memory: {value!r} ")
    if message is not None:
        assert str(error.value) == f"memory: {message}"


def test_a_name_is_optional():
    """Without a name the message begins with what was given."""
    with pytest.raises(UnitError, match=r"^'x' cannot be read"):
        read("x", "byte")


def test_numbers_are_in_the_base_unit():
    """A number, a fraction or a formula is taken as it is."""
    b = symbol("B")
    assert read(80e9, "byte") == 80e9
    assert read(Fraction(1, 3), "byte") == Fraction(1, 3)
    assert read(4 * b, "byte") == 4 * b
    assert read(sympy.Integer(7), "byte") == 7
    assert read(math.inf, "byte") == math.inf


@given(st.integers(0, 10**9), st.sampled_from(["B", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"]))
def test_whole_amounts_are_exact(number, unit):
    """A whole number of any prefix is an int, with every digit."""
    factor = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
    factor |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
    found = read(f"{number} {unit}", "byte")
    assert type(found) is int
    assert found == number * factor[unit[:-1]]


SHOWN = [
    (0, "B", "0 B"),
    (-0.0, "B", "0 B"),
    (1, "B", "1 B"),
    (999, "B", "999 B"),
    (999.6, "B", "1.00 kB"),
    (1000, "B", "1 kB"),
    (1023, "B", "1.02 kB"),
    (999_999, "B", "1.00 MB"),
    (42.9e9, "B", "42.9 GB"),
    (-42.9e9, "B", "-42.9 GB"),
    (85_899_345_920, "B", "85.9 GB"),
    (989.5e12, "FLOP/s", "990 TFLOP/s"),
    (3.35e12, "B/s", "3.35 TB/s"),
    (6.3e24, "FLOP", "6.30e24 FLOP"),
    (9.9996e20, "FLOP", "1.00e21 FLOP"),
    (1.5e-7, "B", "1.50e-7 B"),
    (0.5, "B", "0.500 B"),
    (math.inf, "B", "inf B"),
    (0, "s", "0 s"),
    (0.5, "s", "500 ms"),
    (0.9996, "s", "1.00 s"),
    (0.0009996, "s", "1.00 ms"),
    (1.5e-7, "s", "150 ns"),
    (3e-13, "s", "0.300 ps"),
    (-0.002, "s", "-2 ms"),
    (59.9, "s", "59.9 s"),
    (59.99, "s", "1.00 min"),
    (60, "s", "1 min"),
    (3599.9, "s", "1.00 h"),
    (86399, "s", "1.00 days"),
    (86400, "s", "1 day"),
    (143.927 * 86400, "s", "144 days"),
    (32e6, "s", "370 days"),
    (775e6, "s", "24.6 years"),
    (1e15, "s", "3.17e7 years"),
    (0, "USD", "$0.00"),
    (0.5, "USD", "$0.50"),
    (0.00123, "USD", "$0.00123"),
    (-3, "USD", "-$3.00"),
    (5_576_000, "USD", "$5,576,000"),
    (1e15, "USD", "$1.00e15"),
    (2, "USD/h", "$2.00/h"),
    (15e12, "tokens", "15T tokens"),
    (300e9, "tokens", "300B tokens"),
    (4.19e6, "tokens", "4.19M tokens"),
    (512, "tokens", "512 tokens"),
    (1500, "tokens/s", "1.50k tokens/s"),
    (2_788_000, "device-hours", "2.79M device-hours"),
    (70_553_706_496, "parameters", "70.6B parameters"),
    (0.43, "%", "43%"),
    (0.462289, "%", "46.2%"),
    (1, "%", "100%"),
    (0.001, "%", "0.100%"),
    (295.373, "FLOP/B", "295 FLOP/B"),
    (4681.14, "FLOP/B", "4,681 FLOP/B"),
    (1 / 12, "FLOP/B", "0.0833 FLOP/B"),
    (1024, "", "1,024"),
    (1.5, "", "1.50"),
    (2.0, "", "2"),
    (12_345_678, "", "1.23e7"),
]


@pytest.mark.parametrize(("value", "unit", "text"), SHOWN)
def test_shown(value, unit, text):
    """Three digits with a prefix; what is whole is written so, and no digit before the point is rounded away."""
    assert show(value, unit) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1023, "1,023 B"),
        (1024, "1 KiB"),
        (1536, "1.50 KiB"),
        (2**20 - 1, "1.00 MiB"),
        (2_415_919_104, "2.25 GiB"),
        (80 * 2**30, "80 GiB"),
        (85_520_809_984, "79.6 GiB"),
        (2**60, "1 EiB"),
    ],
)
def test_shown_in_binary(value, text):
    """Binary prefixes count in 1024."""
    assert show(value, "B", binary=True) == text


def test_digits():
    """More or fewer digits are had by asking."""
    assert show(42.9123e9, "B", digits=1) == "43 GB"
    assert show(42.9123e9, "B", digits=5) == "42.912 GB"
    assert show(123.456, "B", digits=2) == "123 B"
    assert show(6.3e24, "FLOP", digits=2) == "6.3e24 FLOP"


def test_a_formula_is_not_shown():
    """A formula with dims is refused with what to do; one without is a number."""
    assert show(sympy.Integer(42) * 10**9, "B") == "42 GB"
    with pytest.raises(UnitError) as error:
        show(4 * symbol("B"), "B")
    assert str(error.value) == "4*B is no number yet; put sizes in for its dims, as in account.at(B=8)"


UNITS = [("B", "byte"), ("FLOP", "FLOP"), ("FLOP/s", "FLOP/second"), ("B/s", "byte/second")]
UNITS += [("tokens", "token"), ("tokens/s", "token/second"), ("USD", "USD")]


@given(st.floats(1, 1e20), st.sampled_from(UNITS), st.integers(3, 6), st.booleans())
def test_what_is_shown_can_be_read(value, units, digits, binary):
    """Every amount that is shown reads as the same one, to its digits; money to the cent, from $100 on to a dollar."""
    text = show(value, units[0], digits, binary and units[0] == "B")
    least = {"USD": 0.005 if value < 100 else 0.5}.get(units[0], 0)
    assert read(text, units[1]) == pytest.approx(value, rel=10.0 ** (1 - digits), abs=least)


@given(st.floats(1e-11, 1e12))
def test_times_that_are_shown_can_be_read(value):
    """The same of times, over all their units."""
    assert read(show(value, "s"), "second") == pytest.approx(value, rel=0.01)


def test_pint_is_imported_on_first_use():
    """Importing the module and showing numbers need no Pint, SymPy or torch."""
    code = (
        "import sys, json\nfrom symacct.units import show\nshow(1e9, 'B')\n"
        "print(json.dumps([m for m in ('pint', 'sympy', 'torch') if m in sys.modules]))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == []
