"""Formulas and accounts at many sizes: the compiled function gives what each formula gives, exact where it says so."""

import os
import random
import subprocess
import sys

import numpy as np
import pytest
import sympy
from blocks import block_account, quartered_account
from hypothesis import given, settings
from hypothesis import strategies as st

from symacct.algebra import evaluate
from symacct.dim import symbol
from symacct.errors import AssumptionError, DimError, MissingSizeError, SpecError, UnknownDimError
from symacct.formulas.compiled import compile_expressions
from symacct.formulas.expressions import parse
from symacct.formulas.grid import HELD, MEASURES, compile_account, grid

FEW = settings(derandomize=True, max_examples=120, deadline=None)
B, L, D = (symbol(n) for n in "BLD")
SIZES = {"B": 8, "L": 1024, "H": 12, "Dh": 64, "F": 3072}

rationals = st.fractions(-9, 9, max_denominator=6).map(lambda f: sympy.Rational(f.numerator, f.denominator))
leaves = st.one_of(rationals, st.sampled_from([B, L, D]))


def grown(inner):
    """Formulas made of smaller ones, with all that can be compiled."""
    pairs = st.tuples(inner, inner)
    divisors = st.integers(2, 9).map(sympy.Integer)
    return st.one_of(
        pairs.map(lambda p: p[0] + p[1]),
        pairs.map(lambda p: p[0] * p[1]),
        pairs.map(lambda p: sympy.Max(*p, evaluate=not (p[0].free_symbols | p[1].free_symbols))),
        pairs.map(lambda p: sympy.Min(*p, evaluate=not (p[0].free_symbols | p[1].free_symbols))),
        inner.map(lambda e: e**2),
        st.tuples(inner, divisors).map(lambda p: sympy.floor(p[0] / p[1])),
        st.tuples(inner, divisors).map(lambda p: sympy.ceiling(p[0] / p[1])),
        st.tuples(inner, divisors).map(lambda p: sympy.Mod(p[0], p[1])),
        inner.map(lambda e: e / (B + L * D)),
    )


formulas = st.recursive(leaves, grown, max_leaves=8)


@FEW
@given(st.lists(formulas, min_size=1, max_size=4), st.integers(0, 10**6))
def test_compiled_is_evaluate(exprs, seed):
    """At random sizes each formula has the value that `evaluate` gives: ints equal, the rest to rounding."""
    rng = random.Random(seed)
    points = [{"B": rng.randint(1, 60), "L": rng.randint(1, 60), "D": rng.randint(1, 60)} for _ in range(5)]
    compiled = compile_expressions({str(i): expr for i, expr in enumerate(exprs)})
    arrays = compiled(**{name: np.array([p[name] for p in points]) for name in ("B", "L", "D")})
    for row, sizes in enumerate(points):
        alone = compiled(**sizes)
        for i, expr in enumerate(exprs):
            expected = evaluate(expr, sizes)
            assert type(alone[str(i)]) is type(expected)
            assert alone[str(i)] == pytest.approx(expected, rel=1e-14, abs=0)
            if isinstance(expected, int):
                assert alone[str(i)] == expected
            if str(i) in arrays.exact:
                assert arrays[str(i)].dtype == np.int64
                assert arrays[str(i)][row] == expected
            else:
                assert arrays[str(i)].dtype == np.float64
                assert arrays[str(i)][row] == pytest.approx(float(expected), rel=1e-13, abs=0)


def test_every_figure_of_an_account_is_what_at_gives():
    """All figures of a block, on a grid that broadcasts, are exactly those of account.at at every point."""
    step = block_account()
    batch, length = np.array([[1], [3], [64]]), np.array([1, 17, 128, 4096])
    found = grid(step, B=batch, L=length, H=4, Dh=16, F=256)
    assert found.shape == (3, 4)
    assert found.values.exact == set(found.values)
    for i, b in enumerate([1, 3, 64]):
        for j, length_here in enumerate([1, 17, 128, 4096]):
            one = step.at(B=b, L=length_here, H=4, Dh=16, F=256)
            for name in HELD:
                assert getattr(found, name)[i, j] == getattr(one, name), name
            for name, phase in [*one.phases.items(), ("total", one.total)]:
                for measure in MEASURES:
                    assert getattr(getattr(found, name), measure)[i, j] == getattr(phase, measure)
            assert found.forward.intensity[i, j] == pytest.approx(float(one.forward.intensity), rel=1e-14)
    assert np.isnan(found.recompute.intensity).all()


def test_beyond_int64():
    """What an int64 cannot hold is float64 and not called exact; ints alone are exact at any size."""
    compiled = compile_expressions(
        {"large": parse("6*N*D"), "small": parse("D + N//7"), "root": parse("6*N*D - 6*N*D + N")}
    )
    sizes = {"N": 405_000_000_000, "D": 15_600_000_000_000}
    assert compiled(**sizes)["large"] == 6 * 405 * 10**9 * 15_600_000_000_000
    found = compiled(N=np.array([sizes["N"]] * 2), D=np.array([1, sizes["D"]]))
    assert found.exact == {"small", "root"}
    assert found["large"].dtype == np.float64
    assert found["large"][1] == pytest.approx(6 * 405e9 * 15.6e12, rel=1e-15)
    assert found["small"][1] == sizes["D"] + sizes["N"] // 7


@pytest.mark.parametrize("power", [60, 62, 63, 64])
def test_the_edge_of_int64(power):
    """A value of 2**62 is exact, one of 2**63 a float; a remainder is right even where its dividend does not fit."""
    size = np.array([2 ** (power - 31), 1])
    found = compile_expressions({"whole": B * L, "rest": sympy.Mod(4 * B * L, 7) + D})(B=size, L=2**31, D=1)
    assert ("whole" in found.exact) == (power < 63)
    assert ("rest" in found.exact) == (power < 61)
    assert float(found["whole"][0]) == 2.0**power
    assert found["rest"].tolist() == [2 ** (power + 2) % 7 + 1, 2**33 % 7 + 1]
    odd = compile_expressions({"rest": sympy.Mod(B * L, 97)})(B=size + 1, L=2**31 - 1)["rest"]
    assert odd.tolist() == [(2 ** (power - 31) + 1) * (2**31 - 1) % 97, 2 * (2**31 - 1) % 97]


def test_values_that_are_not_whole():
    """Halves are floats for the whole array; where every value is whole it is int64 after all."""
    compiled = compile_expressions({"half": L / 2, "mean": (B + L) / (B * L)})
    assert compiled(L=np.array([2, 4]), B=1)["half"].tolist() == [1, 2]
    assert compiled(L=np.array([2, 4]), B=1).exact == {"half"}
    assert compiled(L=np.array([2, 3]), B=1)["half"].tolist() == [1.0, 1.5]
    assert compiled(L=np.array([2, 3]), B=1)["mean"].tolist() == [1.5, 4 / 3]


def test_large_arrays_are_worked_on_in_blocks():
    """An array longer than a block has the values of its parts, whatever its shape."""
    length = np.arange(1, 100_001).reshape(100, 1000)
    found = compile_expressions({"f": 3 * L**2 + sympy.floor(L / 7) * D, "c": 5})(L=length, D=2)
    assert (found["f"] == 3 * length**2 + length // 7 * 2).all()
    assert found["c"].shape == (100, 1000)


def test_common_parts_are_computed_once():
    """Two formulas that share a product have it once in the function."""
    a, b = B * L * D + B, 3 * B * L * D
    alone = [len(compile_expressions({"f": f})._computation.nodes) for f in (a, b)]
    both = len(compile_expressions({"a": a, "b": b})._computation.nodes)
    assert both == sum(alone) - len(("1", "B", "D", "L", "D*L"))


def test_sizes_that_cannot_be_used():
    """Missing sizes, fractions, zeros, words, and shapes that do not fit are errors that show the first."""
    compiled = compile_expressions({"f": B * L})
    with pytest.raises(MissingSizeError, match="no size for L; give one for each of B, L"):
        compiled(B=np.array([1]))
    with pytest.raises(DimError, match=r"L: 2 of 3 sizes are not whole numbers >= 1 .*, the first of them 0\.5"):
        compiled(B=1, L=np.array([3, 0.5, 0]))
    with pytest.raises(DimError, match="an array of bool holds no sizes"):
        compiled(B=1, L=np.array([True]))
    with pytest.raises(DimError, match="L=0: the size of a dim is a whole number >= 1"):
        compiled(B=1, L=0)
    with pytest.raises(DimError, match=r"do not broadcast together: B: \(2,\), L: \(3,\)"):
        compiled(B=np.array([1, 2]), L=np.array([1, 2, 3]))
    assert compiled(B=[1, 2], L=np.float64(3))["f"].tolist() == [3, 6]
    with pytest.raises(SpecError, match="cannot be compiled"):
        compile_expressions({"f": 2**B})
    with pytest.raises(SpecError, match="cannot be compiled"):
        compile_expressions({"f": sympy.Max(1 / (B - L), L, evaluate=False)})


def test_assumptions_hold_on_the_whole_grid():
    """Combinations that break a relation are counted, and the first is shown with the relation that it breaks."""
    step = quartered_account()
    good = grid(step, B=2, D=np.array([4, 8, 12]))
    assert good.forward.flops.tolist() == [step.at(B=2, D=d).forward.flops for d in (4, 8, 12)]
    message = (
        r"^2 of 6 combinations of sizes break what the traced program relied on, so its formulas do not hold there; "
        r"the first is B=1, D=6, where D % 4 == 0 is not so$"
    )
    with pytest.raises(AssumptionError, match=message):
        grid(step, B=np.array([[1], [2]]), D=np.array([4, 6, 8]))


def test_grids_of_accounts_refuse_what_at_refuses():
    """Unknown and missing dims are the errors of account.at, which takes ints alone; other figures are errors."""
    step = block_account()
    with pytest.raises(UnknownDimError, match="there is no dim 'l'; the account's dims are H, Dh, F, B, L"):
        grid(step, l=np.array([1]))
    with pytest.raises(MissingSizeError, match="no size for H, Dh, F, B"):
        grid(step, L=np.array([1]))
    with pytest.raises(SpecError, match="no array among the sizes"):
        grid(step, **SIZES)
    found = grid(step, compile_account(step), **SIZES | {"L": np.array([1, 2])})
    assert repr(found) == "<AccountGrid of shape (2,): B, L, H, Dh, F>"
    with pytest.raises(AttributeError, match="a grid has no figure 'speed'"):
        _ = found.speed


def test_numpy_is_only_needed_for_arrays():
    """Without NumPy ints still work, and an array's stand-in says what to install."""
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "from symacct.formulas.compiled import compile_expressions\n"
        "from symacct.formulas.expressions import parse\n"
        "f = compile_expressions({'f': parse('6*N*D + N//3')})\n"
        "print(f(N=10, D=10**30)['f'])\n"
        "try: f(N=[1, 2], D=1)\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert run.stdout == (
        f"{6 * 10 * 10**30 + 3}\nSpecError arrays of sizes need NumPy, which is not there: pip install numpy\n"
    )
