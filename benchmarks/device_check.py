"""Is what symacct says true on this device? One script, a few minutes, nothing to install beside torch and sympy.

    python benchmarks/device_check.py --device cuda --record docs/runs/h200.json
    python benchmarks/device_check.py --device cpu          # the same at small sizes

Each case is traced for the device, run on it for real, and compared node by node: operators, FLOPs, bytes, memory,
time. The table has a line for each; the record has everything. The exit code is 0 only when all that is claimed holds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import plain_models as plain  # noqa: E402
import torch  # noqa: E402

import symacct as sa  # noqa: E402
from symacct.files import must_be_writable, replacing  # noqa: E402
from symacct.verify import Verification  # noqa: E402

TOKENS = {"ids": "i64[B, L]", "labels": "i64[B, L]"}
ADAMW = torch.optim.AdamW


@dataclass(frozen=True)
class Case:
    """A model, how its step is run, and its sizes on a large device and on a small one."""

    name: str
    build: Callable[[], Any]
    inputs: Mapping[str, str]
    large: Mapping[str, int]
    small: Mapping[str, int]
    options: Mapping[str, Any] = field(default_factory=dict)
    tf32: bool = False
    steps: int = 10


def squares(y: torch.Tensor) -> torch.Tensor:
    """A loss that needs no labels."""
    return (y.float() ** 2).mean()


def halved(builder: Callable[..., Any]) -> Callable[..., Any]:
    """The builder's model in bfloat16."""

    def build(D: int, K: int) -> Any:
        return builder(D, K).to(torch.bfloat16)

    return build


def gpt2(layers: int, checkpoints: bool = False) -> Callable[..., Any]:
    """A builder of GPT-2."""
    return lambda H, Dh, V, P: plain.GPT2(H, Dh, V, P, layers, checkpoints)


def llama(layers: int) -> Callable[..., Any]:
    """A builder of a Llama in bfloat16."""
    return lambda G, H, Dh, F, V: plain.Llama(G, H, Dh, F, V, layers).to(torch.bfloat16)


def cases(is_large: bool) -> Iterator[Case]:
    """What is run. Depth is small on a small device too."""
    deep, shallow = (12, 4) if is_large else (2, 2)
    board = {"B": 16384, "D": 32768, "K": 8192}
    blackboard = {"B": 32, "D": 64, "K": 16}
    words = {"B": 8, "L": 1024, "H": 12, "Dh": 64, "V": 50257, "P": 1024}
    few_words = {"B": 2, "L": 16, "H": 2, "Dh": 8, "V": 64, "P": 16}
    wide = {"B": 2, "L": 4096, "G": 8, "H": 4, "Dh": 128, "F": 14336, "V": 128256}
    narrow = {"B": 2, "L": 16, "G": 2, "H": 2, "Dh": 8, "F": 40, "V": 64}
    two = partial(sa.build, plain.two_layer)
    layers = partial(Case, inputs={"input": "B D"}, large=board, small=blackboard)
    yield layers("two layers, fp32", two, options={"loss": squares}, steps=3)
    yield layers("two layers, tf32", two, options={"loss": squares}, tf32=True)
    yield Case(
        "two layers, bf16, AdamW", partial(sa.build, halved(plain.two_layer)), {"input": "bf16[B, D]"},
        board, blackboard, {"loss": squares, "optimizer": ADAMW},
    )  # fmt: skip
    text = partial(Case, inputs=TOKENS, large=words, small=few_words)
    yield text("GPT-2, fp32, AdamW", partial(sa.build, gpt2(deep)), options={"optimizer": ADAMW}, steps=5)
    mixed = {"optimizer": ADAMW, "autocast": "bf16"}
    yield text("GPT-2, bf16 autocast, AdamW", partial(sa.build, gpt2(deep)), options=mixed)
    yield text("GPT-2, the same, checkpoints", partial(sa.build, gpt2(deep, checkpoints=True)), options=mixed)
    yield Case("Llama, GQA, bf16, AdamW", partial(sa.build, llama(shallow)), TOKENS, wide, narrow, {"optimizer": ADAMW})
    side = 224 if is_large else 32
    pixels = {"input": f"B 3 {side} {side}"}
    images = partial(Case, build=plain.resnet50, inputs=pixels, large={"B": 64}, small={"B": 2})
    yield images("ResNet-50, fp32", steps=5)
    yield images("ResNet-50, tf32", tf32=True)
    yield images("ResNet-50, bf16 autocast, AdamW", options=mixed)


# -- running -------------------------------------------------------------------------------


@contextmanager
def precision(tf32: bool) -> Iterator[None]:
    """Whether float32 products may use tf32 (on CUDA)."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def verified(case: Case, device: str, is_large: bool) -> Verification:
    """Trace a case for the device, and run it there."""
    account = sa.trace(case.build(), device=device, check=False, **case.inputs, **case.options)
    with precision(case.tf32):
        return account.verify(device, at=case.large if is_large else case.small, steps=case.steps if is_large else 2)


COLUMNS = "{:34} {:>8} {:>10} {:>6} {:>6} {:>7} {:>12} {:>9} {:>6}"


def line(case: Case, found: Verification) -> str:
    """A line of the table: what holds, and the time of a step."""

    def held(part: str) -> str:
        wrong = len(found.part(part).residuals)
        return "equal" if found.part(part).holds else f"{wrong} off"

    time, bound = found.figure("median step").measured, found.figure("fastest step").predicted
    return COLUMNS.format(
        case.name, "yes" if found.holds else "NO", *(held(p) for p in ("operators", "FLOPs", "bytes", "memory")),
        f"{time * 1e3:,.3f}", f"{bound / time:.1%}", f"{found.figure('MFU').measured:.1%}",
    )  # fmt: skip


def run(device: str, is_large: bool, seconds: float) -> Iterator[dict[str, Any]]:
    """Run all cases, as far as the time goes; prints the table, yields the records."""
    print(COLUMNS.format("case", "holds", "operators", "FLOPs", "bytes", "memory", "step in ms", "of bound", "MFU"))
    start = time.monotonic()
    for case in cases(is_large):
        if time.monotonic() - start > seconds:
            print(f"{case.name}: not run, the {seconds:g} seconds are over")
            yield {"case": case.name, "error": "not run: the time was over"}
            continue
        try:
            found = verified(case, device, is_large)
        except sa.SymacctError as error:
            print(f"{case.name}: {error}")
            yield {"case": case.name, "error": str(error)}
            continue
        print(line(case, found), flush=True)
        for residual in found.residuals[:3]:
            print(f"    {residual}")
        yield {"case": case.name, "tf32": case.tf32, **json.loads(found.to_json())}


def main() -> int:
    """Parse, run, keep the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sizes", choices=["small", "large"], help="default: large on cuda, small on cpu")
    parser.add_argument("--seconds", type=float, default=270, help="no case begins after that many")
    parser.add_argument("--record", type=Path, help="a JSON file for all that was found")
    given = parser.parse_args()
    if given.record is not None:
        try:
            must_be_writable(given.record, "--record")
        except sa.SymacctError as error:
            parser.error(str(error))
    is_large = (given.sizes or ("large" if given.device == "cuda" else "small")) == "large"
    records = list(run(given.device, is_large, given.seconds))
    holds = all(record.get("holds", False) for record in records)
    if given.record is not None:
        with replacing(given.record, "--record") as file:
            file.write(f"{json.dumps({'holds': holds, 'cases': records}, indent=1)}\n".encode())
    print("all that is claimed holds" if holds else "NOT all that is claimed holds")
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
