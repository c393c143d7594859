"""What dominates: shares, elasticities and crossings, of a plain transformer block and of formulas."""

from fractions import Fraction

import pytest
import sympy
from blocks import block_account, quartered_account
from hypothesis import given, settings
from hypothesis import strategies as st

from symacct.dim import symbol
from symacct.errors import AssumptionError, DimError, MissingSizeError, SpecError, UnknownDimError
from symacct.formulas.crossing import crossover
from symacct.formulas.dominance import elasticities, shares
from symacct.formulas.expressions import parse
from symacct.formulas.terms import express

FEW = settings(derandomize=True, max_examples=60, deadline=None)
B, L, D, F = (symbol(n) for n in "BLDF")
SIZES = {"B": 8, "L": 1024, "H": 12, "Dh": 64, "F": 3072}
FORWARD = parse("24*B*L*D**2 + 4*B*L**2*D + 2*B*L*D*V")

# -- shares ------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["term", "module", "op", "phase"])
@pytest.mark.parametrize("of", ["flops", "pointwise", "bytes"])
def test_shares_add_up(by, of):
    """Whatever a cost is split by, the parts are the whole, largest first."""
    found = shares(block_account(), of=of, by=by, **SIZES)
    assert sum(row.share for row in found) == 1
    assert sum(row.value for row in found) == found.total == getattr(block_account().at(**SIZES).total, of)
    assert [row.value for row in found] == sorted((row.value for row in found), reverse=True)


def test_shares_of_one_phase():
    """Modules and terms of the forward pass alone are those of the forward pass; an account at sizes needs none."""
    step = block_account().at(**SIZES)
    for by in ("module", "term", "op", "phase"):
        assert shares(step, by=by, phase="forward").total == step.forward.flops
    assert shares(step, by="module", phase="forward")["products"].value == step.by_module()["products"].flops / 3


def test_table_of_shares():
    """The table says what, where, and each part with its share, formula and value."""
    assert str(shares(FORWARD, B=8, L=1024, D=768, V=50257)).splitlines() == [
        "flops at B=8, L=1,024, D=768, V=50,257: 774.1 G",
        " 81.69%  2*B*D*L*V      632.4 G",
        " 14.98%  24*B*D**2*L      116 G",
        "  3.33%  4*B*D*L**2     25.77 G",
    ]


def test_a_maximum_counts_as_its_winner():
    """The terms of a peak are those of the moment that wins at the sizes, which the notes name."""
    step = block_account()
    found = shares(step, of="peak_bytes", **SIZES)
    assert found.total == step.at(**SIZES).peak_bytes
    assert [note for note in found.notes if note.startswith("Max of ")]
    assert shares(sympy.Max(L, 3 * D, evaluate=False), L=2, D=1).rows[0].name == "3*D"


def test_what_has_no_shares():
    """Wrong ways to split, missing, unknown and broken sizes are errors that say what to give."""
    step = block_account()
    with pytest.raises(SpecError, match="by: 'layer' is none of term, module, op, phase"):
        shares(step, by="layer", **SIZES)
    with pytest.raises(SpecError, match="are told by op, not params of this"):
        shares(step, of="params", by="op", **SIZES)
    with pytest.raises(SpecError, match="of: 'speed' is no quantity of an account"):
        shares(step, of="speed", **SIZES)
    with pytest.raises(SpecError, match="phase: 'later' is none of forward, backward, recompute, optimizer"):
        shares(step, phase="later", **SIZES)
    with pytest.raises(SpecError, match="flops is 0 at these sizes"):
        shares(step, phase="recompute", **SIZES)
    with pytest.raises(MissingSizeError, match="no size for B, F, L"):
        shares(step, H=1, Dh=1)
    with pytest.raises(UnknownDimError, match="there is no dim 'l'"):
        shares(step, l=3, **SIZES)
    with pytest.raises(DimError, match="whole number"):
        shares(FORWARD, B=0.5, L=1, D=1, V=1)
    with pytest.raises(KeyError, match=r"'nothing' is none of"):
        shares(FORWARD, B=1, L=1, D=1, V=1)["nothing"]


def test_assumptions_hold_for_shares():
    """Sizes that break what a trace relied on are refused."""
    with pytest.raises(AssumptionError, match="D % 4 == 0"):
        shares(quartered_account(), B=1, D=6)
    assert len(shares(quartered_account(), B=1, D=8)) == 1


# -- elasticities ------------------------------------------------------------------------


def test_elasticities_of_a_block():
    """A block's FLOPs go as B, as L where heads are few, and Euler's rule holds for their sum (N071)."""
    found = elasticities(block_account(), **SIZES)
    flops = {"projections": 24 * 768**2, "mlp": 18 * 768 * 3072, "scores": 12 * 1024 * 768}
    total = sum(flops.values())
    assert found["B"] == 1
    assert found["L"] == 1 + Fraction(flops["scores"], total)
    assert found["H"] == found["Dh"] == 1 + Fraction(flops["projections"], total)
    assert found["F"] == Fraction(flops["mlp"], total)
    assert found["V"] == 0
    assert str(found).splitlines()[0] == "d log flops / d log dim at B=8, L=1,024, H=12, Dh=64, F=3,072"
    assert "  B   1" in str(found).splitlines()


@FEW
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=5))
def test_elasticity_is_the_mean_of_exponents(terms):
    """Of a polynomial it is the mean of a dim's exponents, weighted by the shares of the terms."""
    formula = sympy.Add(*(c * L**i * D**j for c, i, j in terms))
    found = elasticities(formula, L=3, D=5)
    weights = [Fraction(c * 3**i * 5**j) for c, i, j in terms]
    assert found["L"] == sum(w * i for w, (_, i, _) in zip(weights, terms, strict=True)) / sum(weights)
    assert found["D"] == sum(w * j for w, (_, _, j) in zip(weights, terms, strict=True)) / sum(weights)


def test_elasticity_of_roundings_and_maxima():
    """A Max grows as its winner, a floor as its inside, a remainder not at all, and the notes say so."""
    formula = sympy.Max(4 * D + L, L**2, evaluate=False) + sympy.floor(L / 8) + sympy.Mod(L, 8)
    found = elasticities(formula, L=10, D=4)
    assert found["L"] == Fraction(10 * 20 + Fraction(10, 8), 103)
    assert found["D"] == 0
    assert sorted(found.notes) == [
        "(L//8) is taken as L/8", "L % 8 is taken as constant", "Max of 2: L**2 wins at these sizes"
    ]  # fmt: skip
    tie = elasticities(sympy.Max(L, D, evaluate=False), L=4, D=4)
    assert any("equal there" in note for note in tie.notes)
    with pytest.raises(SpecError, match="is 0 at these sizes"):
        elasticities(L - D, L=3, D=3)


# -- crossings ---------------------------------------------------------------------------


def test_where_scores_equal_projections_and_the_mlp():
    """Scores cost as much as projections at L = 2*D, as all matrix products with F = 4*D at L = 8*D (N071)."""
    step = block_account()
    modules = step.by_module()
    scores = modules["products"].flops
    projections = sum(modules[name].flops for name in "qkvo")
    mlp = sum(modules[name].flops for name in ("gate", "up", "down"))
    found = crossover(scores, projections, "L")
    assert found.roots == (2 * symbol("Dh") * symbol("H"),)
    assert [region.larger for region in found.regions] == ["b", "a"]
    assert str(found) == "L < 2*Dh*H: b is larger\nL > 2*Dh*H: a is larger"
    in_letters = [express(cost, F="4*D", D="H*Dh") for cost in (scores, projections + mlp)]
    assert crossover(*in_letters, "L").roots == (8 * D,)
    assert str(crossover(modules["products"], modules["up"], "L", Dh=2, H=2, F=8)).endswith("products is larger")
    # The dim that grows the MLP, at GPT-2's width, and phases in place of formulas.
    assert crossover(modules["products"], modules["up"], "F", H=12, Dh=64, L=1024).roots == (2048,)
    at_a_size = crossover(scores, projections, "L", B=1, H=32, Dh=128)
    assert at_a_size.roots == (8192,)
    assert at_a_size.first == 8193


@FEW
@given(st.lists(st.integers(1, 40), min_size=1, max_size=4, unique=True), st.integers(-5, 5).filter(bool))
def test_all_positive_roots_are_found(roots, sign):
    """Of a polynomial with chosen roots each is found, exactly, with the sign between them."""
    roots = sorted(roots)
    difference = sympy.expand(sign * sympy.prod([L - r for r in roots]) * (L + 3) * (L**2 + 1))
    found = crossover(difference, 0, "L")
    assert list(found.roots) == roots
    last = "a" if sign > 0 else "b"
    other = "b" if sign > 0 else "a"
    assert [r.larger for r in found.regions][::-1] == [last if i % 2 == 0 else other for i in range(len(roots) + 1)]


def test_roots_that_are_not_whole():
    """Fractions stay fractions, other roots stay exact; a root that only touches changes no sign."""
    assert crossover(parse("4*L"), parse("9"), "L").roots == (sympy.Rational(9, 4),)
    assert crossover(parse("L**2"), parse("2"), "L").roots == (sympy.sqrt(2),)
    found = crossover(parse("L**3"), parse("3*L**2 + 7"), "L")
    assert str(found) == "L < 3.55415: b is larger\nL > 3.55415: a is larger"
    assert found.first == 4
    touching = crossover(parse("L**2 + 9"), parse("6*L"), "L")
    assert touching.roots == (3,)
    assert [r.larger for r in touching.regions] == ["a", "a"]


def test_crossings_of_maxima():
    """A Max is taken piece by piece, so roots of arguments that do not win are none."""
    peak = sympy.Max(L**2, 10 * L + 5, 3 * L + 100, evaluate=False)
    assert crossover(peak, parse("5*L + 90"), "L").roots == (5, sympy.Rational(5, 2) + sympy.sqrt(385) / 2)
    assert crossover(peak, 3 * L + 100, "L").regions[0].larger == "equal"
    flat = crossover(sympy.Max(L, 10, evaluate=False), 10, "L")
    assert str(flat) == "L < 10: a equals b\nL > 10: a is larger"
    low = sympy.Min(L, D, evaluate=False)
    assert crossover(low, parse("7"), "L", D=9).roots == (7,)


def test_crossings_in_other_dims():
    """Linear and quadratic equations are solved in formulas, with what must hold for them."""
    assert crossover(parse("L**2 + 4*D**2"), parse("5*D*L"), "L").roots == (D, 4 * D)
    one = crossover(parse("L**2"), parse("D*L + 6*B"), "L")
    assert len(one.roots) == 1
    assert sympy.expand(one.roots[0]) == D / 2 + sympy.sqrt(D**2 + 24 * B) / 2
    assert [r.larger for r in one.regions] == ["b", "a"]
    unsure = crossover(parse("L*D"), parse("B - 2*D"), "L")
    assert unsure.notes == ("where B/D - 2 > 0; else there is no crossing",)
    never = crossover(parse("L*D + L"), parse("L*D"), "L")
    assert never.roots == ()
    assert str(never) == "every L: a is larger"
    double = crossover(parse("L**2 + D**2"), parse("2*L*D"), "L")
    assert double.roots == (D,)
    assert [r.larger for r in double.regions] == ["a", "a"]
    assert crossover(parse("L**2 + D**2"), parse("L*D"), "L").roots == ()
    maybe = crossover(parse("L*B"), parse("L*D + 1"), "L")
    assert sympy.cancel(maybe.roots[0] - 1 / (B - D)) == 0
    assert "depends on the other sizes" in str(maybe)


def test_crossings_that_cannot_be_told():
    """A dim that is not there, a cubic in formulas, a Max without sizes and a remainder are errors."""
    with pytest.raises(UnknownDimError, match="nothing that depends on 'V'; the dims of their difference are L"):
        crossover(parse("L"), parse("2"), "V")
    with pytest.raises(SpecError, match="of degree 3 in L; give sizes"):
        crossover(parse("L**3"), parse("D"), "L")
    with pytest.raises(SpecError, match="the other dims need sizes"):
        crossover(sympy.Max(L, D, evaluate=False), parse("7"), "L")
    with pytest.raises(SpecError, match="jumps with a remainder"):
        crossover(sympy.Mod(L, 8), parse("7"), "L")
    rounded = crossover(parse("L//2"), parse("4"), "L")
    assert rounded.roots == (8,)
    assert rounded.notes == ("(L//2) is taken as L/2",)
