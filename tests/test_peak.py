"""Which moments can be the peak: what is left is enough for all sizes, and little of it is needless."""

import random

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn, optim

import symacct as sa
from symacct.algebra import evaluate
from symacct.peak import Space

B, L, D = sympy.symbols("B L D", integer=True, positive=True)
MONOMIALS = [1, B, D, B * L, B * D, L * D, B * L * D, D**2, B * L**2, sympy.floor(L / 3) * B, sympy.ceiling(D / 7)]


def moments(seed, count=40):
    """Sums of a few monomials with coefficients from a seed."""
    rng = random.Random(seed)
    return [sum(rng.randint(0, 9) * m for m in rng.sample(MONOMIALS, 5)) for _ in range(count)]


def kept(sizes, **least):
    """The sizes that can be the largest."""
    space = Space(sizes, least)
    return [sizes[i] for i in space.candidates([space.vectors[s] for s in sizes])]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 30), st.integers(1, 300))
def test_the_kept_moments_reach_the_maximum_at_any_sizes(seed, b, length, d):
    """No moment that was dropped is larger than all that were kept."""
    sizes = list(dict.fromkeys(moments(seed)))
    at = {B: b, L: length, D: d}
    assert max(s.subs(at) for s in kept(sizes)) == max(s.subs(at) for s in sizes)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 50), st.integers(0, 50))
def test_bounds_drop_more_and_hold_within_them(seed, more_l, more_d):
    """With least sizes no more moments are left, and they reach the maximum at and above these."""
    sizes = list(dict.fromkeys(moments(seed)))
    fewer = kept(sizes, L=64, D=128)
    at = {B: 1 + more_l, L: 64 + more_l, D: 128 + more_d}
    assert max(s.subs(at) for s in fewer) == max(s.subs(at) for s in sizes)


def test_dominated_moments_go():
    """A sum with no smaller coefficient, or a product with a dim that is at least 1, covers the other."""
    assert kept([4 * B * D, 4 * B * D + 1, 2 * B]) == [4 * B * D + 1]
    assert kept([4 * B * L * D, 4 * B * D]) == [4 * B * L * D]
    assert kept([4 * B * D, 2 * B * L]) == [4 * B * D, 2 * B * L]
    assert kept([B * L, 100 * B], L=100) == [B * L]


def test_what_lies_between_two_moments_goes():
    """Equal layers: activations fall and gradients rise in equal steps, and only the ends can win."""
    layers = [k * 4 * B * D + (12 - k) * 4 * D**2 for k in range(13)]
    assert kept(layers) == [layers[0], layers[12]]
    assert len(kept([*layers, 30 * B * D + 30 * D**2])) == 3


def test_mixtures_are_exact():
    """What lies on the line between two moments goes, what is a little above it stays."""
    assert kept([9 * B, 9 * D, 6 * B + 3 * D]) == [9 * B, 9 * D]
    assert len(kept([900 * B + 9, 900 * D + 9, 601 * B + 300 * D])) == 3
    assert len(kept([900 * B + 9, 900 * D + 9, 600 * B + 301 * D])) == 3
    assert kept([9 * B + L, 9 * D + L, 5 * B + 4 * D + L]) == [9 * B + L, 9 * D + L]
    assert len(kept([9 * B + L, 9 * D, 5 * B + 4 * D + L])) == 3


def test_a_size_that_is_rounded_up_counts_as_a_size():
    """``-(-n // b)`` is not a negative number of blocks."""
    up = -sympy.floor(-B / 256)
    assert kept([4 * B, 4 * B + 4 * up]) == [4 * B + 4 * up]
    assert kept([4 * B + up, 4 * B + L]) == [4 * B + up, 4 * B + L]


def test_a_term_of_unknown_sign_is_compared_with_itself_only():
    """A maximum of differences may be negative, so its coefficient alone decides nothing."""
    unsure = sympy.floor((L - D) / 2)
    assert len(kept([4 * B, 4 * B + unsure])) == 2
    assert kept([4 * B + unsure, 5 * B + unsure]) == [5 * B + unsure]


def block(layers):
    """A deep net of equal blocks."""
    return lambda D: nn.Sequential(
        *(m for _ in range(layers) for m in (nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D)))
    )


@pytest.mark.parametrize("layers", [2, 8, 24])
def test_the_number_of_candidates_does_not_grow_with_depth(layers):
    """24 equal blocks have no more moments that can win than 2, and the peak is theirs at all sizes."""
    account = sa.trace(sa.build(block(layers)), "B D", optimizer=optim.AdamW, check=False)
    assert len(account.memory.candidates) <= 6
    for b, d in ((1, 1), (1, 512), (4096, 8), (33, 70)):
        at = account.at(B=b, D=d)
        totals = [*at.memory.first.totals(), *at.memory.later.totals()]
        assert at.peak_bytes == max(totals)
        assert evaluate(account.peak_bytes, {"B": b, "D": d}) == max(totals)
