"""Commands that answer questions: what fits, how long, at what cost, and how fast a model serves."""

# Annotations are values in this file, not text: typer reads them.
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symacct.cli.app import app
from symacct.cli.console import errors, hardware, progress
from symacct.cli.step import of_a_step, of_a_step_on, pairs
from symacct.errors import SpecError

if TYPE_CHECKING:
    from symacct.account import Account


@app.command(no_args_is_help=True)
@of_a_step
def solve(
    account: "Account",
    dim: Annotated[str, typer.Option(help="The dim whose largest size is asked for.")],
    within: Annotated[list[str], typer.Option(help="FIGURE=AMOUNT, as in peak_bytes='80 GB'; may be repeated")],
    at: Annotated[str, typer.Option(help="Sizes of the other dims: B=8,L=2048")] = "",
    tie: Annotated[list[str] | None, typer.Option(help="A dim that goes with it: F=4*D; may be repeated")] = None,
) -> None:
    """The largest size of a dim that stays within amounts: exact, whole, and one that the model accepts.

    TARGET and the options up to --check are those of `symacct trace`.

    **Examples**

    `symacct solve examples/gpt2.py:account --dim B --within peak_bytes="80 GB"
    --at L=1024,H=12,Dh=64,V=50257,P=1024`

    `symacct solve examples/two_layer.py:account --dim D --within peak_bytes="24 GB" --tie K=2*D --at B=4096`

    `symacct solve examples/two_layer.py:account --dim D --within params=">= 7e9" --at K=10`

    **Exit codes**: 0 done; 1 nothing fits, or the model cannot be traced; 2 the command is wrong.
    """
    from symacct.napkin import solve as solved

    conditions = dict(_named(each, "--within", "peak_bytes='80 GB'") for each in within)
    ties = dict(_named(each, "--tie", "F=4*D") for each in tie or ())
    print(solved(account, dim, tied=ties or None, **conditions, **pairs(at)))


@app.command(no_args_is_help=True)
@of_a_step_on
def train(
    account: "Account",
    tokens: Annotated[str, typer.Option(help="How many tokens: '15T tokens'")] = "",
    steps: Annotated[str, typer.Option(help="Or how many steps")] = "",
    device: Annotated[
        str, typer.Option(help="A device of the table ('h100'), or FILE.toml:NAME", callback=hardware)
    ] = "",
    devices: Annotated[int, typer.Option(min=1, help="How many")] = 1,
    dtype: Annotated[str, typer.Option(help="Of the peak that MFU is a share of")] = "bf16",
    mfu: Annotated[float | None, typer.Option(help="Model FLOPs utilization, of the dense peak: 0.4")] = None,
    rate: Annotated[str, typer.Option(help="Or the rate of one device: '400 TFLOP/s'")] = "",
    time: Annotated[str, typer.Option(help="Or how long the whole took, to learn the MFU: '3 weeks'")] = "",
    convention: Annotated[str, typer.Option(help="What counts as a FLOP: palm, 6nd, ... (default: as traced)")] = "",
    price: Annotated[str, typer.Option(help="Of a device-hour: '$2/h'")] = "",
) -> None:
    """How long a training takes and what it costs, or, from how long it took, how well it used its devices.

    TARGET and the options up to --check are those of `symacct trace`, but for --device. --at gives the sizes.

    **Examples**

    `symacct train examples/gpt2.py:account --at B=8,L=1024,H=12,Dh=64,V=50257,P=1024 --tokens "300B tokens"
    --device a100-sxm4-80gb --devices 8 --mfu 0.4 --price "$2/h"`

    **Exit codes**: 0 done; 1 the model cannot be traced; 2 the command is wrong.
    """
    from symacct.napkin import training

    given: dict[str, Any] = {
        "tokens": tokens, "steps": steps, "device": device, "mfu": mfu, "rate": rate, "time": time,
        "convention": convention, "price": price,
    }  # fmt: skip
    found = training(account, devices=devices, dtype=dtype, **{n: v for n, v in given.items() if v not in ("", None)})
    print(found)


@app.command(no_args_is_help=True)
def serve(
    config: Annotated[str, typer.Argument(help="A Hugging Face config.json, or its folder", metavar="CONFIG")],
    device: Annotated[
        str, typer.Option(help="A device of the table ('h100'), or FILE.toml:NAME", callback=hardware)
    ] = "",
    devices: Annotated[int, typer.Option(min=1, help="How many share weights and cache")] = 1,
    at: Annotated[str, typer.Option(help="Sizes: B sequences with a past of P tokens: B=8,P=8192")] = "",
    dtype: Annotated[str, typer.Option(help="Of weights, activations and cache: bf16, f16 or f32")] = "bf16",
    kernels: Annotated[str, typer.Option(help="Whose kernels run: cpu or cuda")] = "cpu",
    check: Annotated[bool, typer.Option(help="Check every formula at other sizes.")] = True,
) -> None:
    """Serving a language model: its prefill and its decode step with the cache, memory, and the least times.

    **Examples**

    `symacct serve llama-3-8b.json`

    `symacct serve llama-3-8b.json --at B=8,P=8192,L=2048 --device h100`

    **Exit codes**: 0 done; 1 the model cannot be traced or a check failed; 2 the command is wrong.
    """
    from symacct.inference import inference
    from symacct.inference.overview import overview

    with errors():
        with progress():
            made = inference(config, dtype=dtype, device=kernels, check=check)
        print(overview(made, pairs(at), device, devices))


# -- helpers -----------------------------------------------------------------------------


def _named(text: str, option: str, like: str) -> tuple[str, str]:
    name, sign, value = (part.strip() for part in text.partition("="))
    if not sign or not name.isidentifier() or not value:
        raise SpecError(f"{option}: {text!r} is not NAME=VALUE, as in {like}")
    return name, value
