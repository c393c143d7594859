"""Formulas as JavaScript: in Chromium they have the values that Python's own compiled functions have, to the digit."""

import random
from fractions import Fraction

import pytest
import sympy
from browser import opened
from hypothesis import given, settings
from hypothesis import strategies as st
from test_compiled import formulas

from symacct.algebra import evaluate
from symacct.dim import symbol
from symacct.errors import SpecError
from symacct.formulas.compiled import compile_expressions
from symacct.page.javascript import Formulas
from symacct.page.rendering import _read

B, L, D = (symbol(name) for name in "BLD")
ALPHA = "\u03b1"
# Runs a program at one size after another; what is no digit of the answer stays a BigInt until it is text.
RUN = """([source, points]) => {
  const { floor, mod, max, min } = Symacct.exact;
  const run = new Function("s", "floor", "mod", "max", "min", '"use strict";' + source);
  return points.map((sizes) => run(sizes.map(BigInt), floor, mod, max, min).map(String));
}"""


@pytest.fixture(scope="module")
def tab():
    """A window with the page's own exact numbers, and nothing else of the page."""
    with opened() as page:
        page.tab.evaluate("(source) => { (0, eval)(source); }", _read("static/exact.js").replace("const Symacct =", ""))
        yield page.tab


def in_browser(tab, exprs, points):
    """The values of formulas at points, as Chromium computes them: fractions, or None for a division by 0."""
    made = Formulas(("B", "L", "D"))
    places = [made.place(expr) for expr in exprs]
    rows = tab.evaluate(RUN, [made.source(), [[str(p[name]) for name in ("B", "L", "D")] for p in points]])
    found = []
    for row in rows:
        pairs = list(zip(map(int, row[::2]), map(int, row[1::2]), strict=True))
        found.append([Fraction(*pairs[place]) if pairs[place][1] else None for place in places])
    return found


def exactly(expr, sizes):
    """What SymPy itself says of an expression at sizes."""
    value = sympy.sympify(expr).xreplace({symbol(name): sympy.Integer(size) for name, size in sizes.items()}).doit()
    return Fraction(int(value.p), int(value.q)) if value.is_Rational else None


def points_of(rng, count, most):
    return [{name: rng.randint(1, most) for name in ("B", "L", "D")} for _ in range(count)]


@settings(derandomize=True, max_examples=80, deadline=None)
@given(st.lists(formulas, min_size=1, max_size=4), st.integers(0, 10**6))
def test_javascript_is_python(tab, exprs, seed):
    """At random sizes each formula has the exact value that SymPy and the compiled function give, fractions too."""
    rng = random.Random(seed)
    points = [*points_of(rng, 3, 60), *points_of(rng, 2, 10**12)]
    found = in_browser(tab, exprs, points)
    compiled = compile_expressions({str(i): expr for i, expr in enumerate(exprs)})
    for sizes, row in zip(points, found, strict=True):
        plain = compiled(**sizes)
        for i, (expr, value) in enumerate(zip(exprs, row, strict=True)):
            assert value == exactly(expr, sizes)
            if isinstance(plain[str(i)], int):
                assert value == plain[str(i)] == evaluate(expr, sizes)


def test_all_digits(tab):
    """Beyond 2**53, 2**63 and 2**1000 every digit is there."""
    sizes = {"B": 2**53 + 1, "L": 10**30 + 7, "D": 3**700}
    exprs = [B + 1, B * L, 6 * L**2 * D + B, sympy.Integer(2) ** 64 + 1, B * L / 3, -B * D]
    (found,) = in_browser(tab, exprs, [sizes])
    assert found == [exactly(expr, sizes) for expr in exprs]
    assert found[0] == 2**53 + 2
    assert len(str(found[2].numerator)) > 390


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        (sympy.floor((B - 10) / 4), -2),
        (sympy.floor(B / -4), -1),
        (sympy.ceiling((B - 10) / 4), -1),
        (sympy.Mod(B - 10, 4), 1),
        (sympy.Mod(B - 10, 7, evaluate=False), 0),
        (sympy.Mod(-B, 5), 2),
        (sympy.floor(-B * sympy.Rational(1, 2)), -2),
        (sympy.Max(B - 10, -8), -7),
        (sympy.Min(B - 10, sympy.Rational(-15, 2)), Fraction(-15, 2)),
        (-5 * B + 2, -13),
        (sympy.Rational(-7, 3) * B, -7),
        (sympy.Rational(1, 3) - B, Fraction(-8, 3)),
        (sympy.Integer(-4), -4),
        (sympy.Rational(-4, 6), Fraction(-2, 3)),
        (sympy.Max(B / L, sympy.Rational(1, 2)), Fraction(3, 5)),
    ],
    ids=str,
)
def test_rounding_and_signs(tab, expr, value):
    """floor, ceiling and Mod round towards minus infinity as Python's do; negative numbers and fractions are exact."""
    ((found,),) = in_browser(tab, [expr], [{"B": 3, "L": 5, "D": 1}])
    assert found == value == exactly(expr, {"B": 3, "L": 5, "D": 1})


def test_equal_formulas_have_one_place(tab):
    """A value that is asked for twice is computed once; what has no rule has the place -1."""
    made = Formulas(("B", "L", "D"))
    assert [made.place(each) for each in (B * L, 5, L * B, sympy.Integer(5), None)] == [0, 1, 0, 1, -1]
    assert in_browser(tab, [B * L, 5, L * B], [{"B": 2, "L": 3, "D": 1}]) == [[6, 5, 6]]


def test_no_formulas_at_all(tab):
    """A program of nothing is a program."""
    assert Formulas(()).source() == "return [];"
    assert in_browser(tab, [], [{"B": 1, "L": 1, "D": 1}]) == [[]]


def test_names_do_not_come_into_the_program():
    """Dims are places of an array, so that their names, which can be words of JavaScript, mean nothing there."""
    names = ("class", ALPHA, "s", "t1", "floor", "constructor", "__proto__")
    made = Formulas(names)
    made.place(sympy.Add(*(symbol(name) * (i + 2) for i, name in enumerate(names))))
    assert ALPHA not in made.source()
    assert "class" not in made.source()


def test_what_cannot_be_compiled():
    """A formula with a root is refused by name."""
    made = Formulas(("B",))
    made.place(sympy.sqrt(B))
    with pytest.raises(SpecError, match="cannot be compiled"):
        made.source()
