"""What holds for every rule: it answers, in non-negative ints, and symbols then numbers are numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
import sympy
from harvest import harvest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples import BY_HAND, plain, run_samples

from symacct.cost import COST_FIELDS, Call, TensorMeta
from symacct.errors import RuleError
from symacct.rule import candidates
from symacct.rules import FAMILIES, default_rules

RULES = default_rules()
PER_KEY = 3


@lru_cache(maxsize=1)
def calls_by_key() -> dict[str, list[Call]]:
    """Sample calls of each key of the shipped rules."""
    found: dict[str, list[Call]] = {key: [] for key in RULES.table}
    real = (call for calls in harvest().values() for call, _ in calls)
    for call in (*BY_HAND, *(call for call, _ in run_samples()), *real):
        key = next((k for k in candidates(call.op) if k in RULES.table), None)
        if key is not None:
            found[key].append(call)
    for key, calls in found.items():
        if not calls:
            calls.append(plain(key))
    return found


def resized(value: Any, size: Callable[[int], Any]) -> Any:
    """A value with every size of its tensors that is more than 1 replaced: 0 and 1 are never symbols."""
    if isinstance(value, TensorMeta):
        return replace(value, shape=tuple(size(n) if n > 1 else n for n in value.shape))
    if isinstance(value, (list, tuple)):
        return tuple(resized(v, size) for v in value)
    return value


def resize(call: Call, size: Callable[[int], Any]) -> Call:
    """A call with other sizes."""
    args = {name: resized(v, size) for name, v in call.args.items()}
    return replace(call, args=args, outputs=resized(call.outputs, size))


def symbol(n: int) -> sympy.Symbol:
    """The symbol that stands for a size."""
    return sympy.Symbol(f"s{n}", integer=True, positive=True)


def numbers(call: Call) -> tuple[Any, ...]:
    """The cost of a call, as a tuple."""
    cost = RULES.cost(call)
    assert cost is not None
    return tuple(getattr(cost, name) for name in COST_FIELDS)


def substituted(costs: tuple[Any, ...], sizes: dict[int, int]) -> tuple[Any, ...]:
    """Costs with numbers for their symbols."""
    values = {symbol(n): size for n, size in sizes.items()}
    return tuple(sympy.sympify(c).subs(values) for c in costs)


def all_sizes(call: Call) -> set[int]:
    """All sizes of a call's tensors that become symbols."""
    sizes: set[int] = set()
    resize(call, lambda n: sizes.add(n) or n)
    return sizes


by_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.family.replace(" ", "-"))


@by_family
def test_costs_are_counts(family: Any) -> None:
    """Every rule answers every sample with four ints that are not negative."""
    for key in family.table:
        for call in calls_by_key()[key]:
            costs = numbers(replace(call, is_view=False))
            assert all(type(c) is int and c >= 0 for c in costs), f"{call.op}: {costs}"


@by_family
def test_symbols_then_numbers(family: Any) -> None:
    """A cost in symbols, with the numbers put in, is the cost in numbers."""
    for key in family.table:
        for call in calls_by_key()[key][:PER_KEY]:
            call = replace(call, is_view=False)
            sizes = {n: n for n in all_sizes(call)}
            assert substituted(numbers(resize(call, symbol)), sizes) == numbers(call), call.op


@settings(derandomize=True, deadline=None, max_examples=400, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_symbols_then_other_numbers(data: st.DataObject) -> None:
    """The formula of a call is right at sizes that it was not made at."""
    key = data.draw(st.sampled_from(sorted(RULES.table)), label="key")
    call = replace(data.draw(st.sampled_from(calls_by_key()[key]), label="call"), is_view=False)
    sizes = {n: data.draw(st.integers(2, 40), label=f"s{n}") for n in sorted(all_sizes(call))}
    assert substituted(numbers(resize(call, symbol)), sizes) == numbers(resize(call, sizes.__getitem__))


def test_few_keys_have_only_a_plain_sample() -> None:
    """A key without a real call has a rule that looks at no argument, so a plain call is enough."""
    real = {k for calls in harvest().values() for call, _ in calls for k in candidates(call.op)}
    real |= {k for call in (*BY_HAND, *(call for call, _ in run_samples())) for k in candidates(call.op)}
    for key in RULES.table:
        if key not in real:
            for rule in RULES.table[key].values():
                generic = rule.function.__module__ == "symacct.rule"
                assert generic or set(rule.parameters) <= {"call"}, f"{key} needs a sample"


def test_unknown_is_not_free() -> None:
    """An operator that no rule names has no cost at all."""
    assert RULES.cost(Call("aten.no_such_op.default", {}, ())) is None
    assert "mine.op.default" not in RULES


def test_wrong_rank_is_an_error() -> None:
    """A call that does not fit its pattern raises, with the shape in the message."""
    call = plain("aten.bmm")
    with pytest.raises(RuleError, match=r"expects 3 axes \(b m k\), the tensor has shape \(2, 3\)"):
        RULES.cost(call)
