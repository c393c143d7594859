"""The names people use: other names for parts of formulas, what is left without lower-order terms, order by dims."""

import pytest
import sympy
from blocks import block_account
from hypothesis import given, settings
from hypothesis import strategies as st

import symacct as sa
from symacct.dim import symbol
from symacct.errors import SpecError, UnknownDimError
from symacct.formulas.expressions import parse
from symacct.formulas.growth import asymptotic, collected, leading
from symacct.formulas.terms import express, expressed
from symacct.printing import text

FEW = settings(derandomize=True, max_examples=150, deadline=None)
NAMES = ("N", "S", "E", "I", "O", "Q")  # which mean something else to SymPy's parser
B, L, D, H, Dh, V = (symbol(n) for n in ("B", "L", "D", "H", "Dh", "V"))

factors = st.lists(st.sampled_from(NAMES), max_size=4)
monomials = st.tuples(st.integers(-20, 20).filter(bool), factors)
sums = st.lists(monomials, min_size=1, max_size=6)
positive_sums = st.lists(st.tuples(st.integers(1, 6), factors.filter(len)), min_size=1, max_size=3)


def written(terms):
    """A sum of monomials as Python text."""
    return " + ".join("*".join([f"({c})", *names]) for c, names in terms)


def made(terms):
    """The same as an expression, made without text."""
    return sympy.Add(*(c * sympy.Mul(*map(symbol, names)) for c, names in terms))


def equal(a, b):
    """Whether two expressions are the same polynomial or quotient."""
    return sympy.cancel(a - b) == 0


# -- text ----------------------------------------------------------------------------


@FEW
@given(sums)
def test_text_is_read_as_dims(terms):
    """Names are dims whatever they mean to SymPy, and a formula that was written reads back as itself."""
    assert parse(written(terms)) == made(terms)
    assert parse(text(sympy.expand(made(terms)))) == sympy.expand(made(terms))


def test_every_operator_is_read():
    """Sums, differences, products, quotients, floors, powers, signs and parentheses."""
    assert parse("beta - -gamma*(zeta + 2)**2") == symbol("beta") + symbol("gamma") * (symbol("zeta") + 2) ** 2
    assert parse("8*D/3") == sympy.Rational(8, 3) * D
    assert parse("8*D//4") == 2 * D
    assert parse("D//4") == sympy.floor(D / 4)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("D +", "'D +' cannot be read as an expression; write dims and whole numbers, as in 'H*Dh' or '4*D**2 + D'"),
        ("lambda", "'lambda' cannot be read as an expression"),
        ("__import__('os')", "cannot read \"__import__('os')\"; an expression is made of dims, whole numbers"),
        ("D.real", "cannot read 'D.real'"),
        ("0.5*D", "cannot read '0.5'"),
        ("True", "cannot read 'True'"),
        ("D**K", "cannot read 'K'; a power is a whole number from 0 to 64"),
        ("D**-1", "cannot read '-1'; a power"),
        ("9**64**64", "a power is a whole number"),
        ("(9**64)**64", "a number has at most 1024 bits"),
        ("D//(2 - 2)", "nothing is divided by 0"),
        ("D + " * 300 + "D", "an expression of 1,201 characters is longer than the 1,000 that are read"),
    ],
)
def test_other_text_is_refused(source, message):
    """Calls, attributes, fractions, symbolic and huge powers are errors that name what cannot be read."""
    with pytest.raises(SpecError) as refused:
        parse(source)
    assert message in str(refused.value)


# -- other names -----------------------------------------------------------------------


@FEW
@given(sums, positive_sums)
def test_putting_a_name_back_gives_the_formula(terms, value):
    """Whatever a new name stands for, the result with the name put back is the formula that it was."""
    formula, part = made(terms), made(value)
    assert equal(express(formula, P=part).xreplace({symbol("P"): part}), formula)


@FEW
@given(sums, st.integers(1, 4))
def test_a_product_is_replaced_wherever_it_divides(terms, coefficient):
    """After D stands for S*E, no term has both of them; inside of Max and below a bar as well."""
    formula = made(terms)
    both = sympy.Max(formula, symbol("S") * symbol("E"), evaluate=False) / (symbol("S") * symbol("E"))
    for expr in (formula, both):
        named = express(expr, X=f"{coefficient}*S*E")
        for term in sympy.Add.make_args(sympy.expand(named)):
            for part in (term, *term.atoms(sympy.Max)):
                for product in sympy.Add.make_args(part) if not part.has(sympy.Max) else ():
                    assert not {symbol("S"), symbol("E")} <= product.free_symbols


@FEW
@given(sums)
def test_renaming_there_and_back_is_the_identity(terms):
    """A dim under another name, and then under its own again, is the formula; numbers stay numbers."""
    formula = sympy.expand(made(terms))
    renamed = express(formula, X="S")
    assert symbol("S") not in renamed.free_symbols
    assert express(renamed, S="X") == formula
    assert express(7, X="S") == 7


def test_heads_times_their_size_become_the_width():
    """D for H*Dh, in every power that it has."""
    forward = parse("24*B*L*H**2*Dh**2 + 4*B*H*Dh*L**2 + 2*B*L*H*Dh*V + 5*B*H*L**2")
    assert express(forward, D="H*Dh") == parse("24*B*L*D**2 + 4*B*D*L**2 + 2*B*L*D*V + 5*B*H*L**2")
    per_width = express((forward + B) / (H * Dh), D="H*Dh")
    assert per_width == parse("24*B*L*D + 4*B*L**2 + 2*B*L*V + 5*B*L**2/Dh + B/D")


def test_names_that_are_there_give_way():
    """F is replaced by 4*D, D then takes the place of H*Dh, and swaps happen at once."""
    assert express(parse("6*B*H*Dh*F"), F="4*D", D="H*Dh") == parse("24*B*D**2")
    assert express(parse("H - 2*L"), H="L", L="H") == parse("L - 2*H")
    assert express(parse("H*Dh"), Dh=64) == 64 * H
    assert express(sympy.floor(symbol("F") / 8), F="16*D") == 2 * D


def test_max_and_floor_survive():
    """Peaks are worked on inside: their Max is not evaluated, floors and remainders stay what they are."""
    peak = 4 * H * Dh + sympy.Max(8 * B * H * Dh, H**2 * Dh**2 + 3, evaluate=False) + sympy.floor(H * Dh / 3)
    named = express(peak, D="H*Dh")
    assert named == 4 * D + sympy.Max(8 * B * D, D**2 + 3, evaluate=False) + sympy.floor(D / 3)
    padded = express(sympy.Mod(H * Dh, 3), D="H*Dh")
    assert padded == sympy.Mod(D, 3)


def test_a_formula_in_terms_of_all_parameters():
    """Forward reads 2*B*L*P and what the parameters do not tell, also where P has terms that forward lacks (N065)."""
    params = parse("12*N*D**2 + 13*D*N + V*D + T*D + 2*D")
    forward = parse("24*N*B*L*D**2 + 4*N*B*L**2*D + 2*B*L*D*V")
    named = express(forward, P=params)
    assert text(named) == "4*B*D*L**2*N - 26*B*D*L*N - 2*B*D*L*T - 4*B*D*L + 2*B*L*P"
    assert collected(named, "B", "L") == "4*B*L**2*D*N - 2*B*L*(13*D*N + D*T + 2*D - P)"


def test_a_sum_takes_only_what_it_shortens():
    """A name for D*D + D*K stays away from a lone D*D or D, and divides exactly where it can."""
    assert express(parse("2*B*D**2"), P="D**2 + D*K") == parse("2*B*D**2")
    assert express(parse("4*B*D"), P="D**2 + D*K") == parse("4*B*D")
    assert express(parse("6*B*D**2 + 6*B*D*K + K"), P="D**2 + D*K") == parse("6*B*P + K")
    assert express(parse("(D**2 + D*K)**2"), P="D**2 + D*K") == parse("P**2")


def test_a_new_name_for_a_number_is_refused():
    """A number for a name that is not there is more likely a slip of the pen."""
    with pytest.raises(SpecError, match=r"K=64: there is no dim 'K' to give a size to.*the dims are D, H"):
        express(parse("H*D"), K=64)
    with pytest.raises(SpecError, match=r"\{\} is no expression"):
        express(parse("H*D"), K={})


# -- accounts --------------------------------------------------------------------------


def test_two_layers_in_parameters(account):
    """The two-layer net's forward pass is 2*B*P (N016), its backward pass 2*B*D*K more, not 4*B*P (N018)."""
    step = account("two_layer")
    named = expressed(step, P="params")
    assert str(named.forward) == "2*B*P"
    assert named.backward.flops == parse("2*B*P + 2*B*D*K")
    assert named.params == symbol("P")
    assert named.param_bytes == parse("4*P")
    assert named.phases["forward"].flops == named.forward.flops
    assert named.by_op(phase="forward")["aten.mm.default"].flops == named.forward.flops
    assert named.nodes[0].op == step.nodes[0].op


def test_rule_of_six(account):
    """A step of a block is 6*B*L*P and attention's products; where the input wants no gradient, it is less (N019)."""
    step = expressed(block_account(), D="H*Dh", P="params")
    assert expressed(account("two_layer"), P="params").total.flops == parse("4*B*P + 2*B*D*K")
    assert step.total.flops == parse("6*B*L*P + 12*B*L**2*D")


def test_a_block_in_the_papers_letters():
    """A block reads D for H*Dh and 4*D for F, and every figure with D put back is what it was (N071)."""
    step = block_account()
    named = expressed(step, D="H*Dh")
    assert named.total.flops == parse("24*B*L*D**2 + 18*B*L*D*F + 12*B*L**2*D")
    assert named.params == parse("4*D**2 + 3*D*F")
    assert expressed(step, F="4*D", D="H*Dh").total.flops == parse("96*B*L*D**2 + 12*B*L**2*D")
    assert str(named) == str(step)
    for get in (lambda a: a.total.pointwise, lambda a: a.total.bytes, lambda a: a.activation_bytes):
        assert sympy.expand(get(named).subs(D, H * Dh)) == sympy.expand(get(step))
    assert isinstance(named.peak_bytes.atoms(sympy.Max).pop(), sympy.Max)
    assert Dh not in named.peak_bytes.free_symbols
    sizes = {H: 12, Dh: 64, D: 768, symbol("F"): 3072, B: 2, L: 64}
    assert named.peak_bytes.xreplace(sizes) == step.peak_bytes.xreplace(sizes)


def test_slips_in_names_are_found(account):
    """A value that speaks of an unknown dim is an error that lists the dims; a size for an unknown dim too."""
    step = account("two_layer")
    with pytest.raises(UnknownDimError, match="X=D\\*Kk: there is no dim 'Kk'; the account's dims are D, K, B"):
        expressed(step, X="D*Kk")
    with pytest.raises(SpecError, match="there is no dim 'X' to give a size to"):
        expressed(step, X=3)
    with pytest.raises(AttributeError):
        _ = expressed(step, X="D*K").nothing


# -- lower-order terms -----------------------------------------------------------------


def test_leading_terms():
    """The highest power of what grows, alone or together, by weights; other dims do not matter."""
    forward = parse("24*B*L*D**2 + 4*B*L**2*D + 2*B*L*D*V")
    assert leading(forward, "L") == 4 * B * D * L**2
    assert leading(forward, "L", "D") == 24 * B * L * D**2 + 4 * B * L**2 * D
    assert leading(forward, L=1, D=2, V=2) == 24 * B * L * D**2 + 2 * B * L * D * V
    assert leading(forward, L=1, D=1, V=1) == forward
    assert leading(0, "L") == 0


@FEW
@given(sums)
def test_what_is_dropped_is_of_lower_order(terms):
    """All that is kept has one order, all that is dropped has a lower one, and asymptotic keeps the same terms."""
    formula = sympy.expand(made(terms))
    if symbol("S") not in formula.free_symbols:
        return
    kept = leading(formula, "S")
    top = sympy.degree(formula, symbol("S"))
    assert {sympy.degree(t, symbol("S")) for t in sympy.Add.make_args(kept)} == {top}
    rest = sympy.expand(formula - kept)
    assert rest == 0 or sympy.degree(rest, symbol("S")) < top
    assert asymptotic(formula, "S") == kept


def test_roundings_and_maxima_grow_too():
    """A floor has the order of its inside and stays one in leading; a Max is that of the arguments that can win."""
    rounded = 3 * sympy.floor(L / 8) + L + D
    assert leading(rounded, "L") == 3 * sympy.floor(L / 8) + L
    assert asymptotic(rounded, "L") == sympy.Rational(11, 8) * L
    assert asymptotic(sympy.floor(D / 8) * L + L, "L") == sympy.floor(D / 8) * L + L
    assert leading(sympy.Mod(L, 8) + L, "L") == L
    peak = 7 * L + sympy.Max(4 * D + L, L**2 * B + 3 * L, 2 * L**2, L - L**3, evaluate=False)
    assert leading(peak, "L") == sympy.Max(B * L**2, 2 * L**2, evaluate=False)
    assert asymptotic((4 * L**2 + L) / (2 * L + 3) + 5, "L") == 2 * L
    assert asymptotic(sympy.Max(-L, -(L**2), evaluate=False), "L") == -L
    assert asymptotic(sympy.Min(L, D, evaluate=False), "L") == sympy.Min(L, D, evaluate=False)
    assert leading(1 / (L + 1) + D, "L") == D


def test_growth_that_cannot_be_told():
    """Cancelling highest terms, exponentials, unknown dims and missing names are errors."""
    with pytest.raises(SpecError, match="cancel"):
        asymptotic(8 * sympy.floor(L / 8) - L, "L")
    with pytest.raises(SpecError, match="grows faster than any power"):
        leading(2**L, "L")
    with pytest.raises(
        UnknownDimError, match="leading\\(\\): there is no dim 'l' in the expression; its dims are D, L"
    ):
        leading(D * L, "l")
    with pytest.raises(SpecError, match="name the dims that grow"):
        leading(D * L)
    with pytest.raises(SpecError, match=r"L=0\.5"):
        leading(D * L, L=0.5)


# -- order -------------------------------------------------------------------------------


def test_collected_by_chosen_dims():
    """Chosen dims stand in front, highest powers first, with the rest of each group in its shortest form."""
    forward = parse("N*(24*B*L*D**2 + 4*B*L**2*D) + 2*B*L*D*V")
    assert collected(forward, "N") == "4*N*B*D*L*(6*D + L) + 2*B*D*L*V"
    assert collected(forward, "B", "L") == "4*B*L**2*D*N + 2*B*L*D*(12*D*N + V)"
    assert collected(forward) == sa.formula(forward)
    assert collected(parse("3 - L + 2*L**2 - 4*L**2*D"), "L") == "-2*L**2*(2*D - 1) - L + 3"
    assert collected(D - D, "L") == "0"
    assert collected(L * sympy.Max(D, B, evaluate=False) + L, "L") == "L*(Max(B, D) + 1)"


@FEW
@given(sums, st.permutations(NAMES))
def test_collected_text_is_the_formula_again(terms, order):
    """The text of a collected formula reads back as the formula, and does not depend on how it was built."""
    formula = made(terms)
    shown = collected(formula, *order[:2])
    assert sympy.expand(parse(shown) - formula) == 0
    assert collected(made(terms[::-1]), *order[:2]) == shown


def test_text_does_not_depend_on_the_process(outputs_by_seed):
    """Names, leading terms and collected forms are the same text whatever Python's hashes are."""
    code = (
        "from symacct.formulas.expressions import parse\n"
        "from symacct.formulas.terms import express\n"
        "from symacct.formulas.growth import collected, leading\n"
        "from symacct.printing import text\n"
        "f = parse('24*N*B*L*D**2 + 4*N*B*L**2*D + 2*B*L*D*V + 7*B*L*V*K')\n"
        "p = express(f, P='12*N*D**2 + 13*D*N + V*D + V*K', X='B*L')\n"
        "print(text(p), collected(p, 'X', 'P'), leading(f, 'L', 'V'))"
    )
    assert len(outputs_by_seed(code)) == 1
