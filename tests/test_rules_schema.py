"""Every key of the shipped rules names a torch operator, and every parameter something the operator has."""

from __future__ import annotations

import inspect

import pytest
import torch

from symacct.eight_bit import OPERATOR
from symacct.rule import Rule, Rules, candidates
from symacct.rules import FAMILIES, default_rules
from symacct.rules.weights import COMPLEX, WEIGHTS

RULES = default_rules()
OURS = {OPERATOR.replace("::", ".")}  # importing its file registers it

COME_AND_GO = {  # private or recent ops that not every torch since 2.9 has
    "aten._philox_key_split", "aten._philox_key_fold_in", "aten._philox_uniform", "aten._philox_normal",
    "aten._foreach_powsum", "aten.linalg__powsum", "aten.hash_tensor", "aten._scaled_mm_v2",
    "aten._scaled_grouped_mm_v2", "aten._upsample_lanczos2d_aa", "aten._upsample_lanczos2d_aa_backward",
    "aten._flash_attention_forward_no_dropout_inplace", "aten._weight_int4pack_mm_with_scales_and_zeros",
    "aten.rrelu_with_noise_functional", "aten._make_dep_token", "aten.cholesky",
}  # fmt: skip


def overloads(key: str) -> list:
    """All overloads that a key stands for: of an op, of its in-place form, or the one that is named."""
    namespace, name, *overload = key.split(".")
    space = getattr(torch.ops, namespace)
    packets = [getattr(space, n) for n in (name, f"{name}_") if hasattr(space, n)]
    if overload:
        return [getattr(p, overload[0]) for p in packets if overload[0] in p.overloads()]
    return [getattr(p, o) for p in packets for o in p.overloads()]


by_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.family.replace(" ", "-"))


@by_family
def test_keys_are_operators(family: Rules) -> None:
    """A key resolves to operators of this torch, unless it is listed as coming and going."""
    assert [key for key in family.table if not overloads(key) and key not in COME_AND_GO] == []


@by_family
def test_parameters_exist(family: Rules) -> None:
    """A rule asks for axes of its pattern, arguments of the op, `call`, or has a default."""
    for rule in family:
        schemas = [o._schema.arguments for o in overloads(rule.key)]
        known = {a.name for arguments in schemas for a in arguments}
        axes = rule.pattern.axes if rule.pattern else frozenset()
        for name, parameter in inspect.signature(rule.function).parameters.items():
            assert (
                name == "call"
                or name in axes
                or name in known
                or parameter.default is not inspect.Parameter.empty
                or not schemas
            ), f"{rule.key}: {name}"


@by_family
def test_patterns_fit_the_schema(family: Rules) -> None:
    """A pattern has no more parts than some overload has tensor arguments."""
    for rule in family:
        counts = [sum("Tensor" in str(a.type) for a in o._schema.arguments) for o in overloads(rule.key)]
        if rule.pattern is not None and counts:
            assert len(rule.pattern.inputs) <= max(counts), f"{rule.key}: {rule.pattern.text}"


def all_foreach() -> list[str]:
    """Every `_foreach_*` operator that torch registers."""
    names = (
        s.name.removeprefix("aten::") for s in torch._C._jit_get_all_schemas() if s.name.startswith("aten::_foreach")
    )
    return sorted(set(names))


@pytest.mark.parametrize("name", all_foreach())
def test_foreach_resolves(name: str) -> None:
    """Every `_foreach_*` operator has the rule of the operator that it repeats, or its own."""
    base = name.removeprefix("_foreach_")
    assert any(key in RULES.table for op in (f"aten.{name}", f"aten.{base}") for key in candidates(op))


def test_no_key_twice() -> None:
    """No two families claim one key."""
    keys = [key for family in FAMILIES for key in family.table]
    assert len(keys) == len(set(keys))


def test_every_rule_explains_itself() -> None:
    """Every family and every rule function that is written by hand has a docstring."""
    for rule in RULES:
        assert isinstance(rule, Rule)
        generic = rule.function.__module__ == "symacct.rule"
        assert generic or rule.function.__doc__, rule.key


def test_weights_are_counts() -> None:
    """The table of weights holds non-negative ints, and complex weights only for listed functions."""
    assert all(type(w) is int and w >= 0 for w in (*WEIGHTS.values(), *COMPLEX.values()))
    assert set(COMPLEX) <= set(WEIGHTS)


def test_our_own_operators_have_rules() -> None:
    """What symacct registers itself it also costs."""
    assert set(RULES.table) >= OURS
