"""Dims: ints that remember their symbol."""

import copy
import dataclasses
import json
import math
import pickle

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

import symacct as sa
from symacct.assumptions import Scope, scope, settle
from symacct.dim import check_size, compare, named_dims
from symacct.errors import DimError
from symacct.printing import text


@pytest.fixture
def recorded():
    """A scope that collects assumptions."""
    with scope(Scope()) as collected:
        yield collected


def relations(collected):
    """The collected assumptions as text."""
    return [str(a) for a in settle(collected.assumptions.values())]


def test_a_dim_is_an_int():
    """Everything that wants an int accepts a dim."""
    B = sa.dims("B")
    assert isinstance(B, int)
    assert list(range(B))[-1] == int(B) - 1
    assert [0] * 3 + [1] * (B - B + 1) == [0, 0, 0, 1]
    assert json.dumps({"B": B}) == f'{{"B": {int(B)}}}'
    assert f"{B}" == str(B) == str(int(B))
    assert f"{B:>6d}" == f"{int(B):>6d}"
    assert math.sqrt(B) == math.sqrt(int(B))
    assert {int(B): "found"}[B] == "found"
    assert "x" * int(B) == "x" * B
    assert list("abc" * 100)[B] == list("abc" * 100)[int(B)]


def test_polynomials_divide_with_a_rest():
    """Where long division shows that the rest is smaller than the divisor for all sizes, no floor is left."""
    D = sa.dims("D")
    assert repr((D * D + 2 * D) // (D + 1)) == "D"
    assert repr((D * D + 2 * D) % (D + 1)) == "D"
    assert repr((D * D + D - 1) // (D + 1)) == "D - 1"
    assert repr((D * D + D - 1) % (D + 1)) == "D"
    assert repr(D // (D + 1)) == "0"


def test_arithmetic_keeps_the_symbol():
    """Sums, differences, products, // and % of dims and ints are dims again."""
    B, L, D = sa.dims("B L D")
    assert repr(B * L * D // L) == "B*D"
    assert repr(2 * D + 3 - D) == "D + 3"
    assert repr(10 - D) == "10 - D"
    assert repr(-D) == "-D"
    assert repr(D**2 % D) == "0"
    assert repr(divmod(3 * D, D)) == "(3, 0)"
    assert repr((L + 1) // 2) == "((L + 1)//2)"
    assert repr(L % 7) == "L % 7"
    assert repr(-(-L // 2)) == "-((-L)//2)"
    assert repr(math.prod([B, L, 4])) == "4*B*L"
    assert repr(sum([B, B, 1])) == "2*B + 1"
    assert repr(math.floor(D)) == repr(math.ceil(D)) == repr(round(D)) == repr(+D) == repr(abs(D)) == "D"
    assert type(B - B) is int
    assert type(B // B) is int
    assert type(B**0.5) is float


def test_floats_made_of_dims_remember(recorded):
    """/ and products with floats give floats whose floor, ceil and round are dims, and whose comparisons count."""
    L, D = sa.dims("L D")
    assert isinstance(D / 2, float)
    assert float(D / 2) == int.__int__(D) / 2
    assert repr(math.floor(D * 0.5)) == "(D//2)"
    assert repr(math.ceil(L / 16)) == "ceiling(L/16)"
    assert repr(round(D * 2.0)) == "2*D"
    assert repr((D * 1.5 + 2) // 2) == "((3*D)//4) + 1"
    assert f"{D / 8:.1f}" == f"{int.__int__(D) / 8:.1f}"
    assert repr(pickle.loads(pickle.dumps(D / 8))) == "D/8"
    assert not D > 1e3
    assert D * 0.5 < 512.0
    assert relations(recorded) == ["D <= 1000", "D/2 < 512"]


def test_numbers_that_int_took_are_recognised(recorded):
    """int(D * 4.0) must be an exact int, yet arithmetic and torch know it again while the scope lasts."""
    D = sa.dims("D")
    hidden = int(D * 4.0)
    assert type(hidden) is int
    assert repr(D + hidden) == "5*D"
    assert int(D / 1000) == 0


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("+-*/%"), st.integers(1, 40), st.booleans()), max_size=5),
    st.integers(1, 200),
    st.integers(1, 200),
)
def test_the_expression_gives_the_value(steps, b, d):
    """Whatever is computed with dims, its expression at the trial sizes is its value."""
    B, D = sa.dims("B D", B=b, D=d)
    x = B
    for op, number, use_dim in steps:
        other = D if use_dim else number
        x = {
            "+": lambda a, o: a + o,
            "-": lambda a, o: a - o,
            "*": lambda a, o: a * o,
            "/": lambda a, o: a // o,
            "%": lambda a, o: a % o,
        }[op](x, other)
    value = sympy.sympify(x).subs({sympy.sympify(B): b, sympy.sympify(D): d})
    assert int(value) == int(x)


def test_copies_and_pickles_are_the_same_dim():
    """copy, deepcopy and pickle keep the symbol, also inside of other objects."""
    H, Dh = sa.dims("H Dh")
    for made in (copy.copy(H), copy.deepcopy(H), pickle.loads(pickle.dumps(H)), copy.deepcopy({"a": [H * Dh]})["a"][0]):
        assert isinstance(made, sa.Dim)
    assert pickle.loads(pickle.dumps(H * Dh)).expr == (H * Dh).expr


def test_config_validation_accepts_dims():
    """A dataclass that validates its fields sees ints, and divisible widths divide."""

    @dataclasses.dataclass
    class Config:
        width: int
        heads: int

        def __post_init__(self):
            if not isinstance(self.width, int) or self.width <= 0 or self.width % self.heads:
                raise ValueError("width")

    H, Dh = sa.dims("H Dh")
    config = dataclasses.replace(Config(H * Dh, H), width=2 * H * Dh)
    assert repr(config.width // config.heads) == "2*Dh"


@pytest.mark.parametrize(
    "name", ["N", "S", "E", "I", "Q", "O", "C", "beta", "gamma", "zeta", "pi", "lambda_", "_x", "β"]
)
def test_b67_names_that_sympy_owns(name):
    """Dims may have any name that a person would choose."""
    D = sa.dims(name)
    assert repr(D * 2 + 1) == f"2*{name} + 1"
    assert [s.name for s in sympy.sympify(D).free_symbols] == [name]


def test_in_sympy_a_dim_is_its_symbol():
    """Dims and SymPy expressions mix in both orders."""
    B, x = sa.dims("B"), sympy.Symbol("x")
    assert B * x == x * B == sympy.sympify(B) * x
    assert (x + B).free_symbols == {x, sympy.sympify(B)}


def test_trial_sizes():
    """Default trial sizes are distinct, larger than usual constants, and cheap to loop over."""
    made = named_dims(["B", "L", "D", "K", "H", "F", "V"], {})
    assert made == named_dims(["B", "L", "D", "K", "H", "F", "V"], {})
    sizes = [int.__int__(dim) for dim in made.values()]
    assert len(set(sizes)) == len(sizes)
    assert all(size % 8 == 0 for size in sizes)
    assert min(sizes) > 64
    assert sa.dims("B") is sa.dims("B")
    assert int(sa.dims("B", B=5)) == 5


def test_b65_equal_trial_sizes_never_merge_dims(recorded):
    """Two dims of one trial size stay two, and products keep them apart."""
    B, S = sa.dims("B S", B=4, S=4)
    assert repr(B * S) == "B*S"
    assert repr(B * S // S) == "B"


def test_comparisons_become_assumptions(recorded):
    """What is not true for all sizes is recorded once, in a normal form."""
    L, D = sa.dims("L D", L=16, D=32)
    assert L > 5
    assert not L > 1024
    assert L % 2 == 0
    assert D != 17
    assert L < D
    assert min(L, 100) is L
    assert L % 2 == 0
    assert relations(recorded) == ["L > 5", "L % 2 == 0", "D != 17", "L < D", "L <= 100"]


def test_what_is_always_true_is_no_assumption(recorded):
    """Sizes are positive: what follows from that is not recorded."""
    B, L, D = sa.dims("B L D")
    assert L >= 1
    assert L > 0
    assert B * L * D >= D
    assert L + 1 > L
    assert L // 2 <= L
    assert (L + 1) // 2 >= 1
    assert L != 0
    assert L
    assert B * L == L * B
    assert B * L % L == 0
    assert B is not None
    assert relations(recorded) == []


def test_b62_divisibility_makes_division_exact(recorded):
    """Once a remainder is known to be 0, the quotient has no floor."""
    B, S = sa.dims("B S")
    assert (B * S * 32) % (B * 64) == 0
    assert repr(B * S * 32 // (B * 64)) == "S/2"
    assert repr((S + 1) // 2) == "S/2"
    assert relations(recorded) == ["S % 2 == 0"]


def test_rounding_that_says_divisible(recorded):
    """2*((D + 1)//2) == D is how rounding code says that D is even, and then its floors go."""
    D = sa.dims("D")
    assert 2 * ((D + 1) // 2) == D
    assert relations(recorded) == ["D % 2 == 0"]
    assert repr((D + 3) // 2) == "D/2 + 1"


def test_torch_questions_of_layout_are_not_assumptions(recorded):
    """Only what is asked by the model's own code, and equalities, are kept of answers that depend on sizes."""
    B, L, D = sa.dims("B L D", B=8, L=8, D=16)
    assert not compare("==", D, 17, by_user=False)
    assert not compare("==", D, 1, by_user=False)
    assert compare(">=", L * D, 2, by_user=False)
    assert compare("==", B, L, by_user=False)
    assert compare("<=", D, 1024, by_user=False)
    assert relations(recorded) == ["B == L", "D <= 1024"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sa.dims(""), "dims() needs at least one name, as in dims('B L D')"),
        (lambda: sa.dims("2B"), "'2B' cannot be the name of a dim: use letters, digits and _, as in 'B' or 'd_model'"),
        (lambda: sa.dims("B", D=3), "dims('B'): there is no dim 'D' to give the size 3 to"),
        (lambda: sa.dims("B", B=0), "B=0: the size of a dim is a whole number >= 1"),
        (lambda: sa.dims("B", B=2.5), "B=2.5: the size of a dim is a whole number"),
        (lambda: sa.dims("B", B="x"), "B='x': the size of a dim is a whole number"),
        (lambda: sa.dims("B", B=True), "B=True: the size of a dim is a whole number >= 1"),
    ],
)
def test_messages(make, message):
    """Errors say what is wrong and what to write instead."""
    with pytest.raises(DimError) as caught:
        make()
    assert str(caught.value) == message


def test_whole_floats_and_sympy_integers_are_sizes():
    """A size may come out of a division or out of SymPy."""
    assert check_size("B", 8.0) == check_size("B", sympy.Integer(8)) == 8


def test_text_orders_terms():
    """One printer: mixed terms before squares, higher degree first, numbers last."""
    B, D, K = map(sympy.sympify, sa.dims("B D K"))
    assert text(2 * B * D**2 + 2 * B * D * K) == "2*B*D*K + 2*B*D**2"
    assert text(5 - D + D**2) == "D**2 - D + 5"
    assert sa.formula(24 * B * D**2 + 4 * B * K**2 + 2 * B * D * K) == "2*B*(D*K + 12*D**2 + 2*K**2)"
    assert sa.formula(sympy.Integer(7)) == "7"
    assert sa.formula(1234567) == "1,234,567"
