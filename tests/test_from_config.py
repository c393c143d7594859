"""Configs of published models as models over named dims: their sizes, legends, parameters, FLOPs, and what is refused.

A test with "N.." in its name has its numbers from a published result of that name; those of `PUBLISHED` without one are
the numbers of parameters that the checkpoints' own metadata give.
"""

import dataclasses
import inspect
import json
import logging as logging_of_python
import sys

import pytest
import sympy
import torch
from conftest import TESTS
from sweep_configs import CONFIGS, PAGE, formulas, legends, part
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import symacct as sa
from symacct.errors import AssumptionError, CheckError, DimError, TargetError
from symacct.hf import from_config
from symacct.hf.found import count
from symacct.specs import read_specs

FOLDER = TESTS / "data" / "configs"
NAMES = [path.stem for path in CONFIGS]
PUBLISHED = {
    "gpt2": 124439808,  # N046
    "llama-3-8b": 8030261248,  # N050
    "mistral-7b": 7241732096,  # N050
    "vit-base-patch16-224": 86567656,  # N059
    "qwen2-7b": 7615616512,
    "qwen3-8b": 8190735360,
    "gemma-2b": 2506172416,
    "gemma-2-2b": 2614341888,
    "gemma-3-1b": 999885952,
    "phi-2": 2779683840,
    "phi-3-mini": 3821079552,
    "t5-small": 60506624,
}
COUNTED = ["gpt2", "llama-3-8b", "bert-base-uncased", "t5-small", "vit-base-patch16-224", "whisper-tiny"]
SMALL_T5 = {"model_type": "t5", "d_model": 32, "d_kv": 8, "d_ff": 64, "num_heads": 2, "num_decoder_layers": 5}
TINY = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "num_hidden_layers": 3, "vocab_size": 50,
}  # fmt: skip


def found_of(name, **options):
    """What a config of tests/data/configs becomes."""
    return from_config(FOLDER / f"{name}.json", **options)


def at_sizes(found):
    """The builder's model at the config's own sizes, on the meta device."""
    with torch.device("meta"):
        return found.builder(**found.sizes)


@pytest.fixture(scope="module")
def tiny():
    """A small Llama of one layer, and its account."""
    found = from_config(TINY, depth=1, F=40, L=24)
    return found, found.trace(check=False)


# -- published models ------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_parameters_at_the_configs_sizes_are_those_published_N046_N050_N059(name):
    """The builder at the config's sizes has the parameters of the model that transformers makes, name by name."""
    found = found_of(name)
    ours, theirs = at_sizes(found), found.plain()
    assert {n: p.shape for n, p in ours.named_parameters()} == {n: p.shape for n, p in theirs.named_parameters()}
    assert count(ours) == count(theirs) == PUBLISHED.get(name, count(ours))


def test_bert_without_its_head_has_the_published_parameters_N058():
    """BERT-base with its pooler."""
    found = found_of("bert-base-uncased", task="base")
    assert found.title == "BertModel"
    assert count(at_sizes(found)) == count(found.plain()) == 109482240


@pytest.mark.parametrize("name", NAMES)
def test_a_trace_of_two_layers_holds_at_other_sizes(name):
    """Every dim of the config varies in the check, no op is unknown, and the parameters are those of the real model."""
    found = found_of(name, depth=2)
    step = found.trace()
    assert step.unknown == []
    assert all(any(sizes[dim] != step.trial_sizes[dim] for sizes in step.checked) for dim in found.legend)
    assert sa.algebra.evaluate(step.params, found.sizes) == count(found.plain())
    assert step.forward.flops.free_symbols >= {sa.dim.symbol(dim) for dim in ("B", "H")}


@pytest.mark.parametrize("name", COUNTED)
def test_forward_flops_are_as_flop_counter_mode_counts_them(name):
    """At the config's sizes, with two layers, on meta and without fused attention, which it cannot count there."""
    found = found_of(name, depth=2)
    sizes = {"B": 2, "L": 48, "S": 32, "T": 24, **found.sizes}
    with sdpa_kernel(SDPBackend.MATH):
        step = found.trace(check=False)
        with torch.device("meta"), FlopCounterMode(display=False) as counter:
            specs = read_specs(dict(found.specs))
            found.plain()(**{n: torch.empty(s.sizes(sizes.get), dtype=s.dtype) for n, s in specs.items()})
    ours = step.at(**{n: s for n, s in sizes.items() if n in step.trial_sizes}).forward.flops
    assert ours == counter.get_total_flops()


def test_gpt2_in_symbolic_depth_has_its_published_numbers_N046_N062():
    """Forward, backward and parameters of GPT-2 small are those published, from one account for every depth."""
    found = found_of("gpt2")
    step = found.trace(check=False)
    small = step.at(B=1, L=1024, **found.sizes)
    assert small.params == 124439808
    assert small.forward.flops == 291648307200
    assert small.backward.flops == 583296614400
    B, L, N, H, Dh, V = map(sa.dim.symbol, ("B", "L", "N", "H", "Dh", "V"))
    by_hand = N * (24 * B * L * (H * Dh) ** 2 + 4 * B * L**2 * H * Dh) + 2 * B * L * H * Dh * V
    assert sympy.expand(step.forward.flops - by_hand) == 0


def test_t5_has_a_depth_for_each_side():
    """The encoder's and the decoder's layers are dims of their own."""
    found = from_config({**SMALL_T5, "num_layers": 3}, depth="M")
    assert found.depths == ("Me", "Md")
    assert (found.sizes["Me"], found.sizes["Md"]) == (3, 5)
    assert count(found.builder(**found.sizes)) == count(found.plain())


# -- what a config becomes --------------------------------------------------------------


def test_str_is_the_legend():
    """A line for each dim with its value, words and field, then the inputs."""
    assert str(from_config(TINY)) == (
        "LlamaForCausalLM for causal-lm\n"
        "  G    2  groups of heads, each with one head of keys and values  num_key_value_heads\n"
        "  H    2  query heads per group                                   num_attention_heads / num_key_value_heads\n"
        "  Dh  16  size of a head                                          head_dim\n"
        "  F   96  hidden units                                            intermediate_size\n"
        "  V   50  tokens in the vocabulary                                vocab_size\n"
        "  N    3  layers                                                  num_hidden_layers\n"
        "  B       batch\n"
        "  L       tokens of a sequence\n"
        "inputs: input_ids='i64[B, L]', labels='i64[B, L]'"
    )


def test_a_path_a_folder_a_dict_and_a_config_object_are_alike(tmp_path):
    """Whatever form a config has, it becomes the same."""
    from transformers import LlamaConfig

    (tmp_path / "config.json").write_text(json.dumps(TINY))
    object_of = LlamaConfig(**{n: v for n, v in TINY.items() if n != "model_type"})
    ways = [tmp_path / "config.json", str(tmp_path), dict(TINY), object_of]
    assert len({str(from_config(way)) for way in ways}) == 1
    assert len({count(at_sizes(from_config(way))) for way in ways}) == 1


def test_the_parameters_of_the_builder_are_the_dims():
    """Depth has a default, so that a builder alone makes a shallow model; the others have none."""
    parameters = inspect.signature(from_config(TINY).builder).parameters
    assert list(parameters) == ["G", "H", "Dh", "F", "V", "N"]
    assert [n for n, p in parameters.items() if p.default is not p.empty] == ["N"]
    model = from_config(TINY).builder(1, 2, 8, 12, 20)
    assert len(model.model.layers) == 2
    assert model.config.hidden_size == 16
    assert model.model.layers[0].self_attn.k_proj.weight.shape == (8, 16)


def test_depth_is_a_dim_a_number_or_the_configs_own():
    """A name makes a dim of it, a number replaces the config's, None keeps that."""
    assert from_config(TINY, depth="K").depths == ("K",)
    for depth, layers in ((7, 7), (None, 3)):
        found = from_config(TINY, depth=depth)
        assert found.depths == ()
        assert "N" not in found.sizes
        assert len(at_sizes(found).model.layers) == len(found.plain().model.layers) == layers
    whisper = found_of("whisper-tiny", depth=2)  # whose config has the number of its layers under two names
    for model in (at_sizes(whisper), whisper.plain()):
        assert len(model.model.encoder.layers) == len(model.model.decoder.layers) == 2
    shallow = from_config({**TINY, "num_hidden_layers": 1})
    assert shallow.depths == ()
    assert shallow.notes == ("depth is a number, 1: the least that formulas in it hold for is 2",)


def test_heads_that_are_alike_or_shared_by_all_need_one_dim():
    """As many heads of keys and values as queries: H. One for all: H, and the number 1 stays."""
    alike = from_config({**TINY, "num_key_value_heads": 4})
    assert list(alike.sizes) == ["H", "Dh", "F", "V", "N"]
    assert at_sizes(alike).config.num_key_value_heads == 4
    one = from_config({**TINY, "num_key_value_heads": 1})
    assert list(one.sizes) == ["H", "Dh", "F", "V", "N"]
    assert one.builder(H=6, Dh=4, F=5, V=7).config.num_key_value_heads == 1


def test_a_head_size_of_its_own_frees_the_width():
    """Where heads times head size is not the width, or the family does not tie them, the width is a dim."""
    assert "D" not in from_config(TINY).sizes
    assert from_config({**TINY, "head_dim": 8}).sizes["D"] == 64
    assert from_config({**TINY, "model_type": "qwen3", "head_dim": 16}).sizes["D"] == 64


def test_hidden_units_that_a_config_leaves_out_stay_a_multiple():
    """GPT-2 without n_inner has 4*D of them; with it they are a dim."""
    assert "F" not in found_of("gpt2").sizes
    given = {"model_type": "gpt2", "n_inner": 100}
    assert from_config(given).sizes["F"] == 100


def test_a_part_of_a_head_is_rotated():
    """Phi-2 rotates two fifths of a head, so a head is 5*R."""
    found = found_of("phi-2")
    assert found.sizes["R"] == 16
    assert found.legend["R"].words == "a head has 5*R, of which 2*R are rotated"
    assert "Dh" not in found.sizes


def test_layers_that_differ_repeat_as_groups():
    """Gemma 2 has pairs of layers, Gemma 3 groups of six and a rest; any other depth has them in the same order."""
    pairs, sixes = found_of("gemma-2-2b"), found_of("gemma-3-1b")
    assert pairs.legend["N"].field == "num_hidden_layers = 2*N"
    assert pairs.sizes["N"] == 13
    assert (sixes.legend["N"].field, sixes.sizes["N"]) == ("num_hidden_layers = 6*N + 2", 4)
    small = {"H": 2, "Dh": 8, "D": 16, "F": 12, "V": 20}
    types = sixes.builder(**small, N=1).config.layer_types
    assert types == [*["sliding_attention"] * 5, "full_attention", *["sliding_attention"] * 2]


def test_layers_without_a_period_keep_depth_a_number():
    """Full attention first and sliding later has no period: depth stays what it is, and a note says so."""
    given = {
        **TINY, "model_type": "qwen2", "num_hidden_layers": 6, "use_sliding_window": True, "sliding_window": 8,
        "max_window_layers": 4,
    }  # fmt: skip
    found = from_config(given)
    assert found.depths == ()
    assert found.notes == ("depth is a number, 6: the layers differ without a period (layer_types)",)
    assert "note: depth is a number, 6" in str(found)
    assert at_sizes(found).config.layer_types == ["full_attention"] * 4 + ["sliding_attention"] * 2


def test_lists_of_rotary_factors_are_set_aside():
    """A factor for each half of a head would fix its size; a note says that plain ones are traced."""
    rope = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    options = {"pad_token_id": 0, "original_max_position_embeddings": 64}
    given = {**TINY, **options, "model_type": "phi3", "rope_scaling": rope}
    found = from_config(given, depth=1)
    assert found.notes == (
        "rotary embeddings of type 'longrope', with a factor for each of them, are traced as those of type 'default'",
    )
    assert found.trace(check=False).params != 0


def test_the_text_part_of_a_config_is_taken():
    """A config of text and images is read as its text part, with the head of a language model."""
    text = {"model_type": "gemma3_text", "hidden_size": 64, "num_hidden_layers": 12}
    found = from_config({"model_type": "gemma3", "text_config": text, "vision_config": {}})
    assert found.title == "Gemma3ForCausalLM"
    assert found.sizes["D"] == 64


def test_a_task_chooses_the_class_and_the_inputs():
    """The config's architectures say the task, else the type's usual one; a task that is given comes first."""
    assert (found_of("bert-base-uncased").title, found_of("bert-base-uncased", task="causal-lm").title) == (
        "BertForMaskedLM",
        "BertLMHeadModel",
    )
    assert from_config({"model_type": "bert", "architectures": ["BertLMHeadModel"]}).task == "causal-lm"
    assert found_of("vit-base-patch16-224", task="base").specs == {"pixel_values": "B 3 (16 S) (16 S)"}
    assert found_of("whisper-tiny").specs == {"input_features": "B M (2 S)", "labels": "i64[B, T]"}
    assert found_of("t5-small", task="base").specs == {"input_ids": "i64[B, S]", "decoder_input_ids": "i64[B, T]"}


def test_a_model_can_be_built_and_traced_by_hand(tiny):
    """``model`` and ``specs`` are what `symacct.build` and `symacct.trace` take; trial sizes go where they belong."""
    found, step = tiny
    by_hand = sa.trace(found.model(F=48), check=False, sizes={"L": 32}, **found.specs)
    assert sympy.expand(step.forward.flops - by_hand.forward.flops) == 0
    assert (step.trial_sizes["F"], step.trial_sizes["L"]) == (40, 24)
    assert (by_hand.trial_sizes["F"], by_hand.trial_sizes["L"]) == (48, 32)
    other = found.trace(check=False, sizes={"F": 56, "B": 3}, train=False)
    assert (other.trial_sizes["F"], other.trial_sizes["L"], other.trial_sizes["B"]) == (56, 24, 3)
    assert other.backward.flops == 0


def test_transformers_is_quiet_meanwhile():
    """It warns of a special token outside the vocabulary, but not here, and its verbosity is as before."""
    from transformers import LlamaConfig
    from transformers.utils import logging

    seen = []
    handler = logging_of_python.Handler()
    handler.emit = seen.append
    before = logging.get_verbosity()
    logging.set_verbosity_warning()
    logging.get_logger("transformers").addHandler(handler)
    try:
        found = from_config({**TINY, "bos_token_id": 1000}, depth=1)
        found.model()
        found.plain()
        assert seen == []
        assert logging.get_verbosity() == logging.WARNING
        LlamaConfig(vocab_size=50, bos_token_id=2000)  # each message is shown once
        assert seen != []
    finally:
        logging.get_logger("transformers").removeHandler(handler)
        logging.set_verbosity(before)


# -- what does not hold ------------------------------------------------------------------


def test_sizes_that_break_an_assumption_are_traced_themselves():
    """ModernBERT takes its hidden units as a number, so the trace is made at the config's own."""
    given = {
        "model_type": "modernbert", "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 24,
        "num_hidden_layers": 2, "vocab_size": 40, "local_attention": 8, "pad_token_id": 0,
    }  # fmt: skip
    step = from_config(given, depth=2).trace()
    assert step.trial_sizes["F"] == 24
    assert "F == 24" in map(str, step.assumptions)


def test_an_account_is_confirmed_by_the_real_model(tiny):
    """Other parameters than those of the config's own model are an error, and so are sizes that break an assumption."""
    found, step = tiny
    found.confirm(step)
    other = dataclasses.replace(found, _plain=lambda: nn.Linear(2, 3))
    with pytest.raises(CheckError, match=r"^LlamaForCausalLM: the formula gives \d+,\d+ parameters at the config's"):
        other.confirm(step)
    odd = dataclasses.replace(found, sizes={**found.sizes, "Dh": 15})
    with pytest.raises(AssumptionError, match=r"^Dh=15: the traced program relied on Dh % 2 == 0"):
        odd.confirm(step)


def test_trace_confirms_its_account(tiny, monkeypatch):
    """A trace with its check confirms the account, one without does not."""
    found, step = tiny
    confirmed = []
    monkeypatch.setattr(type(found), "_traced", lambda self, sizes, options: step)
    monkeypatch.setattr(type(found), "confirm", lambda self, account: confirmed.append(account))
    assert found.trace(check=False) is step
    assert confirmed == []
    assert found.trace() is step
    assert confirmed == [step]


ERRORS = {
    "a missing file": ("nowhere/config.json", "there is no file nowhere/config.json"),
    "a type": (3, "from_config(): expected the path of a config.json, a dict or a config object, got int"),
    "no model type": (
        {"hidden_size": 8},
        "the config has no model_type, which says what model it is for, as in 'llama'",
    ),
    "no sizes": (
        {"model_type": "resnet"},
        "a config of type 'resnet' has no hidden_size, from which its dims would be read; make the model in a builder "
        "of your own, as in sa.build(lambda D, N: Model(Config(width=D, depth=N)))",
    ),
    "widths": (
        {**TINY, "model_type": "gpt_neox", "hidden_size": 65},
        "the config: gpt_neox refuses its fields: ValueError: The hidden size is not divisible by the number of "
        "attention heads! Make sure to update them!",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_say_what_is_wrong(case):
    """One line each."""
    source, message = ERRORS[case]
    with pytest.raises(TargetError) as caught:
        from_config(source)
    assert str(caught.value) == message


def test_files_that_are_no_configs_are_refused(tmp_path):
    """Broken JSON with its place, JSON of something else, a folder without a config, bytes that are no text."""
    broken = tmp_path / "broken.json"
    broken.write_text('{"model_type": "llama",\n "hidden_size" 8}')
    with pytest.raises(TargetError, match=r"broken.json is not JSON: line 2, column 16: Expecting ':' delimiter$"):
        from_config(broken)
    (tmp_path / "list.json").write_text("[1, 2]")
    with pytest.raises(TargetError, match=r"list.json holds a list, not the fields of a config$"):
        from_config(tmp_path / "list.json")
    with pytest.raises(TargetError, match=r"^there is no file .*config.json$"):
        from_config(tmp_path)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TargetError, match=r"bytes.json cannot be read: "):
        from_config(tmp_path / "bytes.json")


def test_an_unknown_type_names_the_close_ones():
    """A type that transformers does not have, with what was perhaps meant and what else can be done."""
    with pytest.raises(TargetError, match=r"has no model_type 'lama'; did you mean .*llama.*sa\.build") as caught:
        from_config({"model_type": "lama"})
    assert "\n" not in str(caught.value)


def test_unknown_tasks_and_sizes_are_refused():
    """Both errors list what there is."""
    with pytest.raises(
        TargetError, match=r"^from_config\(\): there is no task 'chess'; the tasks are causal-lm, masked-lm"
    ):
        from_config(TINY, task="chess")
    with pytest.raises(TargetError, match=r"no model of type 'llama' for speech; it has causal-lm, base$"):
        from_config(TINY, task="speech")
    with pytest.raises(DimError, match=r"^from_config\(\): Q=3, but the dims are G, H, Dh, F, V, N, B, L$"):
        from_config(TINY, Q=3)


def test_without_transformers_the_error_says_how_to_get_it(monkeypatch):
    """The library is an optional one."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(TargetError) as caught:
        from_config(TINY)
    assert str(caught.value) == "a config needs the library transformers: pip install 'symacct[hf]'"


# -- the page ----------------------------------------------------------------------------


def test_the_page_has_the_legends_as_they_are():
    """docs/configs.md has what `python tests/sweep_configs.py` prints."""
    assert part(PAGE.read_text(), "legends") == legends()


@pytest.mark.slow
def test_the_page_has_the_formulas_as_they_are():
    """docs/configs.md has the formulas in all dims and in depth, of accounts that were checked."""
    assert part(PAGE.read_text(), "formulas") == formulas()
