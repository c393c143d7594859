"""Amounts with units: "80 GB" to a number that is checked to be bytes, and numbers to what people read.

Everywhere else amounts are plain numbers in base units: byte, FLOP, second, USD, token, and rates of these.
Pint (BSD) reads the units. Its registry here knows only these, so that a byte is no bare number, as it is in
Pint's own.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import cache
from numbers import Real
from typing import Any

from symacct.errors import UnitError

_DEFINITIONS = """
kilo- = 1e3 = k- = K-
mega- = 1e6 = M-
giga- = 1e9 = G-
tera- = 1e12 = T-
peta- = 1e15 = P-
exa- = 1e18 = E-
zetta- = 1e21 = Z-
yotta- = 1e24 = Y-
milli- = 1e-3 = m-
micro- = 1e-6 = µ- = u-
nano- = 1e-9 = n-
pico- = 1e-12 = p-
kibi- = 1024 = Ki-
mebi- = 1048576 = Mi-
gibi- = 1073741824 = Gi-
tebi- = 1099511627776 = Ti-
pebi- = 1125899906842624 = Pi-
exbi- = 1152921504606846976 = Ei-
byte = [information] = B = bytes
bit = byte / 8 = _ = bits
FLOP = [operation] = _ = FLOPs = flop = flops
second = [time] = s = sec = secs = seconds
minute = 60 second = min = mins = minutes
hour = 3600 second = h = hr = hrs = hours
day = 86400 second = d = days
week = 7 day = _ = weeks
month = year / 12 = _ = months
year = 365.25 day = _ = yr = years
USD = [money] = _ = dollar = dollars = usd
token = [text] = _ = tok = tokens
device = [machine] = _ = devices = gpu = gpus = GPU = GPUs
FLOPS = FLOP / second = _
bps = bit / second = _
Bps = byte / second = _
""".strip().splitlines()
# What an amount is called in messages, by its base unit.
_NAMES = {
    "byte": "bytes", "FLOP": "FLOP", "second": "a time", "USD": "money", "token": "tokens", "device": "devices",
    "FLOP/second": "a rate in FLOP/s", "byte/second": "a rate in bytes/s", "USD/hour": "a price per device-hour",
    "token/second": "a rate in tokens/s",
}  # fmt: skip
_EXAMPLES = {
    "byte": "80 GB", "FLOP": "3e23 FLOP", "second": "3 days", "USD": "500 USD", "token": "15T tokens",
    "device": "8 devices", "FLOP/second": "400 TFLOP/s", "byte/second": "3.35 TB/s", "USD/hour": "2.5 USD/h",
    "token/second": "1e6 tokens/s", "": "7e9",
}  # fmt: skip
_AMOUNT = re.compile(
    r"(?P<money>\$?) ?(?P<number>[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d*)?(?:[eE][-+]?\d{1,2})?) ?"
    r"(?P<unit>[A-Za-zµ/*$ -]*)",
    re.ASCII,
)
# What one counts is counted in millions and billions: "70B" parameters, "15T tokens", "$2.5M".
_COUNTS = {"k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_COUNTED = ("", "token", "token/second", "USD")
_COUNT = re.compile(r"([kKMBT])(?![A-Za-z])")


@cache
def _registry() -> Any:
    import pint  # on first use: nothing else needs it

    registry: Any = pint.UnitRegistry(None, non_int_type=Fraction)
    for line in _DEFINITIONS:
        registry.define(line)
    return registry


def read(value: Any, unit: str, name: str = "") -> Any:
    """An amount as a number of ``unit`` ("byte", "FLOP/second", ... or "" for a count), from text with its unit.

    ``read("80 GB", "byte")`` is 80 * 10**9, exactly; "GiB" counts in 2**30, and "15T tokens" in 10**12. A plain
    number, or a SymPy expression, is taken to be in ``unit`` already. Raises `UnitError`, which opens with ``name``,
    for what cannot be read, for an amount of something else, and for one below 0.
    """
    where = f"{name}: " if name else ""
    like = f'{_NAMES.get(unit, unit) or "a number"}, such as "{_EXAMPLES.get(unit, "1 " + unit)}"'
    if isinstance(value, str):
        number = _number(value, unit, where, like)
    elif isinstance(value, bool) or not (isinstance(value, Real) or hasattr(value, "free_symbols")):
        raise UnitError(f"{where}{value!r} is no amount; expected {like}")
    else:
        number = value
    if isinstance(number, Real) and not number >= 0:  # nor nan
        raise UnitError(f"{where}{value!r} is no amount of 0 or more; expected {like}")
    return number


def _number(text: str, unit: str, where: str, like: str) -> int | float:
    """The number of ``unit`` that a text says. No arithmetic is done in it: "9**9**9" is refused, not computed."""
    registry = _registry()
    found = _AMOUNT.fullmatch(" ".join(text.split()))
    if found is None or not any(c.isdigit() for c in found["number"].lower().partition("e")[0]):
        raise UnitError(f"{where}{text!r} cannot be read; expected {like}")
    amount, rest = Fraction(found["number"].replace(",", "")), found["unit"]
    if unit in _COUNTED and (count := _COUNT.match(rest)):
        amount, rest = amount * _COUNTS[count[1]], rest[1:].strip()
    try:
        units = registry.parse_units(_spelled(f"USD{rest}" if found["money"] else rest))
    except Exception:  # Pint raises its own and those of Python's tokenizer
        raise UnitError(f"{where}{text!r} cannot be read; expected {like}") from None
    quantity = registry.Quantity(amount, units)
    if unit == "USD/hour" and quantity.check("[money]/[machine]/[time]"):
        quantity *= registry.Quantity(1, "device")
    if not quantity.dimensionless and quantity.dimensionality != registry.Quantity(1, unit).dimensionality:
        raise UnitError(f"{where}{text!r} is {_what(quantity)}; expected {like}")
    exact = Fraction(quantity.magnitude if quantity.dimensionless else quantity.to(unit).magnitude)
    return int(exact) if exact.denominator == 1 else float(exact)


def _spelled(units: str) -> str:
    """Units as Pint reads them: of "USD/GPU-hour" both are divided by, of "PFLOP/s-days" only the first."""
    units = units.strip().replace("$", "USD").replace(" per ", "/").replace("/s-", "/s*")
    return units.replace("-", "/" if "/" in units.partition("-")[0] and "*" not in units else "*")


def _what(amount: Any) -> str:
    registry = _registry()
    for unit, name in _NAMES.items():
        if amount.dimensionality == registry.Quantity(1, unit).dimensionality:
            return name
    return f"in {amount.units}"


# -- for people ----------------------------------------------------------------------

_PREFIXED = ("B", "FLOP", "FLOP/s", "B/s", "s")  # other units are words, behind a count: "15T tokens"
_SI = ("", "k", "M", "G", "T", "P", "E")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_COUNTING = ("", "k", "M", "B", "T")
_BELOW = ("", "m", "µ", "n", "p")
_RATIOS = ("", "FLOP/B")
_TIMES = (("years", 31557600), ("days", 86400), ("h", 3600), ("min", 60), ("s", 1))


def show(value: Any, unit: str = "", digits: int = 3, binary: bool = False) -> str:
    """A number with an SI prefix (or a binary one) and so many digits: ``show(42.9e9, "B")`` is "42.9 GB".

    ``unit``: what to print behind the prefix: "B", "FLOP", "FLOP/s", "B/s" or "s"; "USD" and "USD/h" for money; any
    word, such as "tokens", of which "15T tokens" are counted in k, M, B and T. Times of a minute and more are in
    min, h, days or years. Ratios have no prefix: "FLOP/B", "%" (of 0.43: "43%"), "". Digits before the point are
    never rounded away, and what is whole has none behind it. Raises `UnitError` for a formula that is no number.
    """
    try:
        number = float(value) + 0.0  # -0.0 is 0
    except (TypeError, ValueError):
        raise UnitError(f"{value} is no number yet; put sizes in for its dims, as in account.at(B=8)") from None
    if not math.isfinite(number):
        return f"{number} {unit}".strip()
    if unit == "%":
        return f"{_digits(100 * number, digits)}%"
    if unit.startswith("USD"):
        return f"{'-' if number < 0 else ''}${_cents(abs(number), digits)}{unit[3:]}"
    if unit in _RATIOS:
        return f"{_digits(number, digits)} {unit}".strip()
    if unit == "s" and abs(_rounded(number, digits)) >= 60:
        return _long_time(number, digits)
    if unit == "s":
        return _short_time(number, digits)
    if unit not in _PREFIXED:
        scaled, prefix = _scaled(number, _COUNTING, 1000, digits)
        return f"{_digits(scaled, digits)}{prefix} {unit}"
    scaled, prefix = _scaled(number, *((_BINARY, 1024) if binary else (_SI, 1000)), digits)
    return f"{_digits(scaled, digits)} {prefix}{unit}"


def _scaled(number: float, prefixes: tuple[str, ...], base: int, digits: int) -> tuple[float, str]:
    """A number by the prefix that leaves it under ``base``; by none where the largest does not."""
    scaled = number
    for prefix in prefixes:
        limit = 1000 if base == 1000 else base - 0.5
        if abs(_rounded(scaled, digits) if base == 1000 else scaled) < limit:
            return scaled, prefix
        scaled /= base
    return number, ""


def _long_time(number: float, digits: int) -> str:
    """A minute and more, in the largest unit of which there are one or more; years from two on."""
    for name, seconds in _TIMES:
        amount = number / seconds
        if abs(_rounded(amount, digits)) >= (2 if name == "years" else 1):
            break
    text = _digits(amount, digits)
    return f"{text} {'day' if name == 'days' and text.lstrip('-') == '1' else name}"


def _short_time(number: float, digits: int) -> str:
    rounded, power = abs(_rounded(number, digits)), 0
    while rounded and rounded * 1000**power < 1 and power < len(_BELOW) - 1:
        power += 1
    return f"{_digits(number * 1000**power, digits)} {_BELOW[power]}s"


def _cents(number: float, digits: int) -> str:
    if number and not 0.01 <= number < 1e12:
        return _digits(number, digits)
    return f"{number:,.0f}" if number >= 100 else f"{number:,.2f}"


def _rounded(number: float, digits: int) -> float:
    return float(f"{number:.{digits}g}") if number else 0.0


def _digits(number: float, digits: int) -> str:
    """So many significant digits, or all that stand before the point; a power of ten where that is hard to read."""
    rounded = _rounded(number, digits)
    if rounded and not 1e-4 <= abs(rounded) < 1e7:
        mantissa, exponent = f"{number:.{digits - 1}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    places = max(digits - 1 - math.floor(math.log10(abs(rounded))), 0) if rounded else 0
    text = f"{number:,.{places}f}"
    return text if number != int(number) or "." not in text else text.rstrip("0").rstrip(".")
