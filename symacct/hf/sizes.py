"""Which fields of a config are sizes, and by which letters they go.

Fields are read by the names that `transformers` has in common for all its models (``hidden_size``,
``num_attention_heads``, ...; ``attribute_map`` leads from these to a family's own), so that a family needs no code of
its own. Where a field is a multiple of others in every model of a family it is written as that multiple. No dim is a
quotient of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import groupby
from typing import Any

from symacct.building import SHALLOWEST
from symacct.errors import TargetError
from symacct.hf.layout import Factor, Follows, Layout, Reader, period_of

_MLP = ("intermediate_size", "n_inner", "d_ff", "ffn_dim", "ffn_hidden_size", "encoder_ffn_dim", "decoder_ffn_dim")
_SHARED_HEADS = ("num_key_value_heads", "num_kv_heads")
_DECODER_HEADS = ("decoder_attention_heads", "num_decoder_attention_heads")
_DECODER_LAYERS = ("decoder_layers", "num_decoder_layers")


def lay_out(config: Any, depth: str | int | None) -> Layout:
    """The dims of a config. ``depth``: the name of the dim of depth, a number of layers, or None for the config's own.

    Raises `TargetError` where the config has no sizes by the common names.
    """
    reader = Reader(config)
    _widths(reader)
    _mlp(reader)
    _tokens_and_positions(reader)
    _images_and_sound(reader)
    _layers(reader, depth)
    return reader.layout()


def _widths(reader: Reader) -> None:
    """Heads, the size of a head, and the model's width: their product, or a dim of its own."""
    hidden, heads = reader.must("hidden_size"), reader.must("num_attention_heads")
    decoders = [name for name in _DECODER_HEADS if reader.value(name) is not None]
    if any(reader.value(name) != heads for name in decoders):
        raise TargetError("the config has other heads in its decoder than in its encoder; make the model in a builder")
    head = reader.value("head_dim")
    size = head or hidden // heads
    # A family that gives its head size a default of its own does not tie it to the width, even where they agree.
    tied = hidden == heads * size and not isinstance(getattr(type(reader.config), reader.own("head_dim"), None), int)
    if not tied:
        if head is None:
            raise TargetError(f"the config's {reader.own('hidden_size')} of {hidden} is no multiple of {heads} heads")
        reader.dim("D", "width of the model", hidden, "hidden_size")
    count = _heads(reader, heads, decoders)
    factors = _head(reader, size)
    if head is not None and not isinstance(getattr(type(reader.config), reader.own("head_dim"), None), property):
        reader.fields[reader.own("head_dim")] = Follows(factors)
    width = Follows((*count, *factors))
    # Some families refuse a width that is no multiple of their heads, which nothing in them needs.
    (reader.fields if tied else reader.early)[reader.own("hidden_size")] = width


def _heads(reader: Reader, heads: int, decoders: list[str]) -> tuple[Factor, ...]:
    """The number of heads as a product: H, or G groups of H that share one head of keys and values."""
    name = next((name for name in _SHARED_HEADS if reader.value(name)), "")
    shared = reader.value(name) or heads
    both = [reader.own("num_attention_heads"), *decoders]
    if 1 < shared < heads and heads % shared == 0:
        how = f"{both[0]} / {reader.own(name)}"
        reader.dim("G", "groups of heads, each with one head of keys and values", shared, name)
        reader.dim("H", "query heads per group", heads // shared, *both, how=how, factors=("G", "H"))
        return "G", "H"
    if shared in (heads, 1):
        alike = [name] if name and shared == heads else []
        words = "heads" if shared == heads else "query heads, with one head of keys and values in all"
        reader.dim("H", words, heads, *both, *alike)
        return ("H",)
    reader.notes.append(f"{heads} heads on {shared} heads of keys and values stay numbers: no multiple")
    return (heads,)


def _head(reader: Reader, size: int) -> tuple[Factor, ...]:
    """The size of a head: Dh, or a multiple of R that makes the rotated part of it a whole and even number."""
    rope = getattr(reader.config, "rope_parameters", None) or {}
    part = rope.get("partial_rotary_factor", 1.0) or 1.0
    share = Fraction(part).limit_denominator(64)
    unit = share.denominator * (1 if share.numerator % 2 == 0 else 2)
    if share >= 1 or size % unit:
        where = reader.own("head_dim") if reader.value("head_dim") else ""
        how = where or f"{reader.own('hidden_size')} / {reader.own('num_attention_heads')}"
        reader.dim("Dh", "size of a head", size, how=how)
        return ("Dh",)
    how = f"{reader.own('hidden_size')} / {reader.own('num_attention_heads')} / {unit}"
    reader.dim("R", f"a head has {unit}*R, of which {share * unit}*R are rotated", size // unit, how=how)
    return unit, "R"


def _mlp(reader: Reader) -> None:
    """Hidden units: one dim where encoder and decoder have the same."""
    found = {reader.own(name): reader.value(name) for name in _MLP if reader.value(name) is not None}
    if found.get("encoder_ffn_dim") != found.get("decoder_ffn_dim"):
        for letter, side in (("Fe", "encoder"), ("Fd", "decoder")):
            reader.dim(letter, f"hidden units of the {side}", reader.must(f"{side}_ffn_dim"), f"{side}_ffn_dim")
    elif found:
        reader.dim("F", "hidden units", next(iter(found.values())) or 0, *found)
    expert = reader.value("moe_intermediate_size")
    if expert is not None:
        reader.dim("Fx", "hidden units of an expert", expert, "moe_intermediate_size")


def _tokens_and_positions(reader: Reader) -> None:
    if reader.value("vocab_size"):
        reader.dim("V", "tokens in the vocabulary", reader.must("vocab_size"), "vocab_size")
    rotary = getattr(reader.config, "rope_parameters", None)
    if reader.value("max_source_positions"):
        words = (
            "positions of the encoder, each of two frames"
            if reader.value("num_mel_bins")
            else "positions of the encoder"
        )
        reader.dim("S", words, reader.must("max_source_positions"), "max_source_positions")
    for name in ("max_target_positions", "max_position_embeddings"):
        if not rotary and "P" not in reader.legend and reader.value(name):
            words = "positions of the decoder" if "target" in name else "positions"
            reader.dim("P", words, reader.must(name), name)


def _images_and_sound(reader: Reader) -> None:
    image, patch = reader.value("image_size"), reader.value("patch_size")
    if image and patch and image % patch == 0:
        how, words = f"image_size / {patch}", f"patches of {patch} pixels along a side"
        reader.dim("S", words, image // patch, "image_size", how=how, factors=(patch, "S"))
    if reader.value("num_mel_bins"):
        reader.dim("M", "bins of a mel spectrogram", reader.must("num_mel_bins"), "num_mel_bins")


# -- depth ----------------------------------------------------------------------------


def _layers(reader: Reader, depth: str | int | None) -> None:
    """The dims of depth: one, or one of the encoder and one of the decoder. Layers that differ repeat as a group."""
    total = reader.must("num_hidden_layers")
    decoder = [name for name in _DECODER_LAYERS if reader.value(name) is not None]
    reader.lists.update(_per_layer(reader.config, total))
    if depth is None:
        return
    if isinstance(depth, int):
        for name in ("num_hidden_layers", *decoder):
            reader.fields[reader.own(name)] = Follows((depth,))
        return
    if decoder:
        sides = (f"{depth}e", "encoder", "num_hidden_layers"), (f"{depth}d", "decoder", decoder[0])
        for letter, side, name in sides:
            reader.dim(letter, f"layers of the {side}", reader.must(name), name)
            reader.depths.append(letter)
        return
    period = period_of(list(reader.lists.values()))
    if period is None:
        names = ", ".join(reader.lists)
        reader.notes.append(f"depth is a number, {total}: the layers differ without a period ({names})")
        return
    times, rest = divmod(total, period)
    if times < SHALLOWEST:
        reader.notes.append(f"depth is a number, {total}: the least that formulas in it hold for is {SHALLOWEST}")
        return
    words, how = "layers", ""
    if period > 1:
        first = next(iter(reader.lists.values()))[:period]
        kinds = ", ".join(f"{len(list(run))} {kind}" for kind, run in groupby(first))
        words, how = f"groups of {period} layers ({kinds})", f"{reader.own('num_hidden_layers')} = {period}*{depth}"
        how += f" + {rest}" if rest else ""
    reader.dim(depth, words, times, "num_hidden_layers", how=how)
    reader.fields[reader.own("num_hidden_layers")] = Follows((depth,) if period == 1 else (period, depth), rest)
    reader.depths.append(depth)


def _per_layer(config: Any, total: int) -> dict[str, Sequence[Any]]:
    """The fields that have one entry for each layer."""
    found = {name: value for name, value in vars(config).items() if isinstance(value, (list, tuple))}
    return {name: list(value) for name, value in found.items() if len(value) == total and total > 1}
