"""What a config's model is for: its class, and the inputs of a training step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from symacct.errors import TargetError
from symacct.hf.layout import Layout
from symacct.hf.reading import transformers

_TOKENS = {"L": "tokens of a sequence"}
_PAIR = {"S": "tokens of the source", "T": "tokens of the target"}
# Inputs that a tokenizer gives too. Without them a BERT takes parts of buffers, and with L == P it takes them whole,
# which is another graph: the account would not hold at the longest sequence.
_MORE = {"bert": {"token_type_ids": "i64[B, L]", "position_ids": "i64[1, L]"}}


@dataclass(frozen=True)
class Task:
    """A kind of model: where `transformers` lists the classes, and the inputs by name with the words for their dims."""

    table: str
    specs: Mapping[str, str]
    words: Mapping[str, str]


TASKS: Mapping[str, Task] = {
    "causal-lm": Task("CAUSAL_LM", {"input_ids": "i64[B, L]", "labels": "i64[B, L]"}, _TOKENS),
    "masked-lm": Task("MASKED_LM", {"input_ids": "i64[B, L]", "labels": "i64[B, L]"}, _TOKENS),
    "seq2seq-lm": Task("SEQ_TO_SEQ_CAUSAL_LM", {"input_ids": "i64[B, S]", "labels": "i64[B, T]"}, _PAIR),
    "speech": Task(
        "SPEECH_SEQ_2_SEQ", {"input_features": "B {mel} (2 S)", "labels": "i64[B, T]"}, {"T": "tokens of the text"}
    ),
    "image-classification": Task(
        "IMAGE_CLASSIFICATION", {"pixel_values": "B {channels} {side} {side}", "labels": "i64[B]"}, {}
    ),
    "base": Task("", {}, _TOKENS),
}


def task_of(config: Any, architectures: Any, wanted: str | None) -> tuple[str, type]:
    """The task and the class of its model: as wanted, else as the config's ``architectures`` say, else the usual one.

    Raises `TargetError` for a task that is not known, or that the config's type has no model for.
    """
    if wanted is not None and wanted not in TASKS:
        raise TargetError(f"from_config(): there is no task {wanted!r}; the tasks are {', '.join(TASKS)}")
    named = (architectures or [None])[0]
    classes = {name: found for name in TASKS if (found := _class_name(config.model_type, name))}
    for name in [wanted] if wanted else [n for n, c in classes.items() if c == named] + _usual(config):
        if name in classes:
            try:
                return name, getattr(transformers(), classes[name])
            except (ImportError, AttributeError) as error:
                raise TargetError(f"transformers cannot load {classes[name]}: {error}") from error
    has = ", ".join(classes) or "none of the tasks"
    raise TargetError(
        f"transformers has no model of type {config.model_type!r} for {wanted or 'a training step'}; it has {has}"
    )


def _usual(config: Any) -> list[str]:
    if getattr(config, "is_encoder_decoder", False):
        return ["speech", "seq2seq-lm", "base"]
    return ["image-classification", "masked-lm", "causal-lm", "base"]


def _class_name(model_type: str, task: str) -> str | None:
    tables = import_module("transformers.models.auto.modeling_auto")
    table = f"MODEL_FOR_{TASKS[task].table}_MAPPING_NAMES" if TASKS[task].table else "MODEL_MAPPING_NAMES"
    found = getattr(tables, table, {}).get(model_type)
    return found if found is None or isinstance(found, str) else found[0]


def inputs_of(task: str, config: Any, layout: Layout) -> tuple[dict[str, str], dict[str, str]]:
    """The specs of a step's inputs, and words for the dims in them that are not the model's own."""
    if task == "base":
        specs = {"input_ids": "i64[B, L]"}
        if getattr(config, "num_mel_bins", None):
            specs, task = {"input_features": TASKS["speech"].specs["input_features"]}, "speech"
        elif getattr(config, "image_size", None):
            specs, task = {"pixel_values": TASKS["image-classification"].specs["pixel_values"]}, "image-classification"
        elif getattr(config, "is_encoder_decoder", False):
            specs, task = {"input_ids": "i64[B, S]"}, "seq2seq-lm"
        if getattr(config, "is_encoder_decoder", False):
            specs["decoder_input_ids"] = "i64[B, T]"
    else:
        specs = dict(TASKS[task].specs)
    labels = {name: specs.pop(name) for name in ("labels",) if name in specs}
    specs |= {**_MORE.get(config.model_type, {}), **labels}
    side = layout.fields.get("image_size")
    fill = {
        "mel": "M" if "M" in layout.legend else getattr(config, "num_mel_bins", ""),
        "channels": getattr(config, "num_channels", ""),
        "side": f"({' '.join(map(str, side.factors))})" if side else getattr(config, "image_size", ""),
    }
    return {name: text.format(**fill) for name, text in specs.items()}, {"B": "batch", **TASKS[task].words}
