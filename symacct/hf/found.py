"""`from_config`: from a Hugging Face config to a builder over named dims, its legend, its inputs and its account."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from symacct.algebra import evaluate
from symacct.assumptions import require
from symacct.building import build
from symacct.dim import plain, point
from symacct.errors import CheckError, DimError
from symacct.hf.layout import Layout, Meaning
from symacct.hf.reading import fields_of, quiet, read
from symacct.hf.sizes import lay_out
from symacct.hf.tasks import inputs_of, task_of
from symacct.shown import Shown

if TYPE_CHECKING:
    from symacct.account import Account

_TRIAL_DEPTH = 2  # of a builder that is called without a depth
_ROOMY = {"P": 1024}  # trial sizes: more positions than there are tokens


@dataclass(frozen=True)
class FromConfig(Shown):
    """A model as a config describes it, over named dims.

    ``builder`` makes the model, and its parameters are dims. ``sizes`` are the config's own sizes of these, so that
    ``account.at(B=1, L=2048, **found.sizes)`` is the very model of the config. ``legend`` tells for each dim what it
    is, from which field it comes, and the config's value. ``specs`` are the inputs of a training step by name.
    ``depths`` are the dims that change the number of layers. ``trial`` are sizes to trace at, where the default ones do
    not suit. ``notes`` say what was not taken as it is. ``str()`` prints all this.
    """

    title: str
    task: str
    builder: Callable[..., nn.Module]
    sizes: Mapping[str, int]
    legend: Mapping[str, Meaning]
    specs: Mapping[str, str]
    inputs: Mapping[str, str]  # words for the dims that the inputs alone have
    depths: tuple[str, ...]
    trial: Mapping[str, int]
    notes: tuple[str, ...]
    config: Any
    _plain: Callable[[], nn.Module] = field(repr=False)

    def model(self, **sizes: int) -> nn.Module:
        """The module with symbolic sizes, and symbolic depth where the config has a dim of it (`symacct.build`)."""
        wanted = {**{n: s for n, s in self.trial.items() if n in self.legend}, **sizes}
        with quiet():
            return build(self.builder, depth=self.depths, **wanted)

    def plain(self) -> nn.Module:
        """The module that `transformers` itself makes of the config, with plain numbers everywhere, on the meta device.

        It has as many layers as ``from_config`` was told, by default the config's own number.
        """
        with quiet(), torch.device("meta"):
            return self._plain()

    def trace(self, **options: Any) -> Account:
        """The account of a training step, by `symacct.trace` with its options; ``specs`` are the inputs.

        Where an assumption of the account does not hold at the config's own sizes, it is traced at these. With
        ``check`` (the default) it is also confirmed (`confirm`), beside the check at other sizes.

        Raises what `symacct.trace` and `confirm` raise.
        """
        sizes = {**self.trial, **(options.pop("sizes", None) or {})}
        account = self._traced(sizes, options)
        if broken := self._broken(account):
            account = self._traced({**sizes, **{name: self.sizes[name] for name in broken}}, options)
        if options.get("check", True):
            self.confirm(account)
        return account

    def _traced(self, sizes: Mapping[str, int], options: Mapping[str, Any]) -> Account:
        from symacct.tracing import trace

        model = self.model(**{n: s for n, s in sizes.items() if n in self.legend})
        given = {n: s for n, s in sizes.items() if n not in self.legend}
        with quiet():
            return trace(model, sizes=given, **{**self.specs, **options})

    def _broken(self, account: Account) -> list[str]:
        """The dims of assumptions that do not hold at the config's own sizes, which are then sizes to trace at."""
        at = point(self.sizes)
        broken = [a for a in account.assumptions if a.holds(at) is False]
        names = dict.fromkeys(s.name for a in broken for s in a.symbols)
        return [name for name in names if name in self.legend and name not in self.depths]

    def confirm(self, account: Account) -> None:
        """Compare an account's parameters at the config's sizes with the model that `transformers` makes of the config.

        Raises `AssumptionError` where the account does not hold at these sizes, `CheckError` where the numbers differ.
        """
        require(account.assumptions, point(self.sizes))
        ours, theirs = evaluate(account.params, self.sizes), count(self.plain())
        if ours != theirs:
            raise CheckError(
                f"{self.title}: the formula gives {ours:,} parameters at the config's sizes, the model that "
                f"transformers makes of the config has {theirs:,}; a field of the config changes the model in a way "
                "that its dims do not show: make the model in a builder of your own"
            )

    def __str__(self) -> str:
        rows = [(n, f"{m.value:,}", m.words, m.field) for n, m in self.legend.items()]
        rows += [(n, "", words, "") for n, words in self.inputs.items()]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = [f"{self.title} for {self.task}"]
        for name, value, words, where in rows:
            line = f"  {name:{widths[0]}}  {value:>{widths[1]}}  {words:{widths[2]}}  {where}"
            lines.append(line.rstrip())
        lines.append("inputs: " + ", ".join(f"{name}={spec!r}" for name, spec in self.specs.items()))
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


def from_config(source: Any, /, *, depth: str | int | None = "N", task: str | None = None, **sizes: int) -> FromConfig:
    """A model over named dims, from a Hugging Face config; no network and no weights.

    ``source``: the path of a ``config.json`` or of its folder, its fields as a dict, or a config object of
    `transformers`. ``depth``: the name of the dim of depth (for an encoder and a decoder "Ne" and "Nd"), a number of
    layers, or None for the config's own number. ``task``: "causal-lm", "masked-lm", "seq2seq-lm", "speech",
    "image-classification" or "base" (no head and no labels); by default what the config's ``architectures`` say.
    ``sizes``: trial sizes of dims, where the default ones do not suit.

    Parameters are float32, whatever the type in which a checkpoint was stored.

    Raises `TargetError` for what cannot be read or is no model of `transformers`, `DimError` for a size of no dim.
    """
    given, config, notes = read(source)
    layout = lay_out(config, depth)
    task, made = task_of(config, given.get("architectures"), task)
    specs, inputs = inputs_of(task, config, layout)
    inputs = {name: words for name, words in inputs.items() if name not in layout.legend}
    for name, size in sizes.items():
        if name not in layout.legend and name not in inputs:
            raise DimError(f"from_config(): {name}={size}, but the dims are {', '.join((*layout.legend, *inputs))}")
    roomy = {name: size for name, size in _ROOMY.items() if name in layout.legend}
    maker = _Maker(made, config, fields_of(given), layout)
    return FromConfig(
        made.__name__, task, maker.builder(), layout.sizes, layout.legend, specs, inputs, layout.depths,
        {**roomy, **sizes}, (*notes, *layout.notes), config, maker.plain,
    )  # fmt: skip


def count(model: nn.Module) -> int:
    """Number of elements in the parameters of a module, shared ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


@dataclass(frozen=True)
class _Maker:
    """Makes configs and models at sizes of a layout's dims."""

    made: Any
    config: Any
    given: Mapping[str, Any]
    layout: Layout

    def config_at(self, sizes: Mapping[str, int]) -> Any:
        """The config with its sizes replaced; the special tokens are the first one, which is in every vocabulary."""
        own = {name: follows.at(sizes) for name, follows in self.layout.fields.items()}
        early = {name: follows.at(sizes) for name, follows in self.layout.early.items()}
        changed = self._made({**own, **early, **_token_ids(self.config)})
        for name in early:
            setattr(changed, name, own[name])
        return changed

    def plain(self) -> nn.Module:
        """The model with the config's own sizes, and the number of layers that was given."""
        given = {n: f.at({}) for n, f in self.layout.fields.items() if all(isinstance(each, int) for each in f.factors)}
        return self.made(self._made(given))  # type: ignore[no-any-return]

    def _made(self, changes: Mapping[str, Any]) -> Any:
        names = self.config.attribute_map
        kept = {n: value for n, value in self.given.items() if names.get(n, n) not in changes}
        own = names.get("num_hidden_layers", "num_hidden_layers")
        layers = plain(changes.get(own, getattr(self.config, own)))
        lists = {name: self.layout.list_at(name, layers) for name in self.layout.lists}
        return type(self.config)(**{**kept, **lists, **changes})

    def builder(self) -> Callable[..., nn.Module]:
        """A function whose parameters are the layout's dims, and which makes the model at sizes of these."""

        def builder(*args: int, **sizes: int) -> nn.Module:
            bound = signature.bind(*args, **sizes)
            bound.apply_defaults()
            with quiet():
                return self.made(self.config_at(bound.arguments))  # type: ignore[no-any-return]

        kind, depths = inspect.Parameter.POSITIONAL_OR_KEYWORD, self.layout.depths
        free = [inspect.Parameter(name, kind) for name in self.layout.legend if name not in depths]
        deep = [inspect.Parameter(name, kind, default=_TRIAL_DEPTH) for name in depths]
        signature = inspect.Signature([*free, *deep])
        builder.__name__, builder.__doc__ = self.made.__name__, f"A {self.made.__name__} at sizes of its dims."
        builder.__signature__ = signature  # type: ignore[attr-defined]
        return builder


def _token_ids(config: Any) -> dict[str, Any]:
    """Special tokens as the first one of the vocabulary, so that they are in one of any size."""
    found = {n: v for n, v in vars(config).items() if n.endswith("_token_id") and v is not None}
    if getattr(config, "is_encoder_decoder", False):
        found["decoder_start_token_id"] = 0
    return {name: [0] if isinstance(value, (list, tuple)) else 0 for name, value in found.items()}
