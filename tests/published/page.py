"""docs/published.md: a section for each entry, and where the other ids of the reference are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import sympy

import symacct as sa
from published.entry import Entry, Figure, Number, Proof, proof_of
from symacct.formulas.expressions import read
from symacct.printing import text

PAGE = Path(__file__).parent.parent.parent / "docs" / "published.md"

FORMULA = re.compile(r"[\w().*/]+(?: [+\-=/] [\w().*/]+)*")

HEAD = """# Published formulas

Formulas and whole numbers that papers, books and tools publish, beside what a trace of a real module gives. The ids
(N001 to N124) are those of the napkin-math reference that the tests follow. This page is what

```
python tests/sweep_published.py --slow --write
```

writes. Each section is a test (`tests/test_published.py`; sections marked *slow* run with `-m slow`): the traced
formula, less the published one, less what is said to lie beside it, is 0 after SymPy's `expand`, and each number comes
out of `account.at(...)` as a Python int, equal to the published one, or rounded to the digits that are printed.

How to read a section: after each quantity stands the traced formula as `sa.formula` prints it, in the names of the
paper where it has one for a product of dims (`d` for `H*hd`; the line *Traced* has them all). *Beside it* is what the
trace has and the formula has not (with a minus sign the other way), with the reason. Models are traced with symbolic
depth where the formula has layers; the depth has the letter of the paper. FLOP are counted by the preset that is named
(`account.under`), else as autograd runs the step: products alone, 2 for each multiply-add.
"""

ELSEWHERE = (  # ids, formula, file, tests
    ("N001", "4*m*n bytes of a float32 matrix", "test_memory_napkin", ("test_n001",)),
    ("N002", "8,192 bytes of two 32 x 32 matrices", "test_memory_napkin", ("test_n002",)),
    ("N003", "4*d*d parameters, 16*d*d bytes", "test_memory_napkin", ("test_n003",)),
    ("N005", "views cost nothing, a copy 2*numel*itemsize bytes", "test_memory_napkin", ("test_n005",)),
    ("N016, N017, N018, N019", "the two-layer net, by conventions", "test_conventions", ("test_n016_to_n019",)),
    ("N025", "4 + 4 + 8 bytes for each parameter", "test_memory_napkin", ("test_n025",)),
    ("N026", "12, 16 and 18 bytes for each parameter in mixed precision", "test_memory_napkin", ("test_n026",)),
    ("N027", "16*P bytes of Llama-2-7B", "test_memory_napkin", ("test_n027",)),
    ("N028", "optimizer state of 0, 1, 1, 1, 2 float32 for each parameter", "test_memory_napkin", ("test_n028",)),
    ("N029", "bytes of a linear head with Adagrad and Adam", "test_memory_napkin", ("test_n029",)),
    ("N030", "bytes of the deep linear net with Adagrad and Adam", "test_memory_napkin", ("test_n030",)),
    ("N031", "(L + 1)*B*D saved elements", "test_memory_napkin", ("test_n031",)),
    ("N033", "activations linear in B*T*d and B*a*T**2", "test_memory_napkin", ("test_n033",)),
    ("N061, N062, N064, N065, N066, N068, N069, N072, N074, N075", "the same at a fixed depth of 2 or 3",
     "test_conventions", ("test_n061_kaplan", "test_n062_gpt2_small", "test_n064_palm", "test_n065_n066_megatron",
                          "test_n065_with_a_real_checkpoint", "test_n068_chinchilla", "test_n069_chinchilla_ratio",
                          "test_n072_megatron_core", "test_n074_apertus", "test_n075_eleuther")),
    ("N079", "fused attention, with exact causal pairs", "test_conventions", ("test_n079_fused_attention",)),
    ("N080", "FLOP of softmax, norms, GELU and dropout in ELECTRA", "test_conventions", ("test_n080_electra",)),
    ("N089", "bytes of state for each parameter, every class of torch.optim", "test_memory_napkin", ("test_n089",)),
    ("N090", "2 + 2*4/256 bytes for each parameter of 8-bit Adam", "test_eight_bit", ("test_n090",)),
    ("N091", "state of 12, 6 and 8 bytes, weights and state of 10", "test_memory_napkin", ("test_n091",)),
    ("N093", "bytes of ZeRO's stages", "test_memory_napkin", ("test_n093",)),
    ("N094", "s*b*h*(34 + 5*a*s/h) bytes of activations", "test_memory_napkin", ("test_n094",)),
    ("N095", "the same as eager PyTorch keeps them", "test_memory_napkin", ("test_n095",)),
    ("N098", "4*B*H*T bytes of log-sum-exps", "test_memory_napkin", ("test_n098",)),
    ("N100", "activations of the CS336 model", "test_memory_napkin", ("test_n100",)),
    ("N101", "caches in int8 and latent caches", "test_memory_napkin", ("test_n101_int8", "test_n101_latent")),
    ("N104", "28 bytes moved for each parameter by AdamW", "test_memory_napkin", ("test_n104",)),
    ("N106", "34*s*b*h*L bytes and the parameters of a 20B model", "test_memory_napkin", ("test_n106",)),
    ("N122", "the scan as a loop, by operator", "test_structural", ("test_a_selective_scan",)),
)  # fmt: skip


def ids_of(text: str) -> list[str]:
    """The ids of "N001, N002"."""
    return text.split(", ")


def heading(entry: Entry) -> str:
    """The line that opens an entry's section."""
    return f"## {entry.ids}: {prose(entry.title)}{' (slow)' if entry.slow else ''}"


def section(entry: Entry) -> str:
    """An entry as Markdown, from its proof."""
    proof = proof_of(entry)
    lines = [heading(entry), "", f"Published: {prose(entry.statement)} ({entry.source}).", ""]
    lines += [f"Traced: {prose(proof.how)}{_names(proof)}.", ""]
    for figure in proof.figures:
        lines += _figure(proof, figure)
    rows = [(figure, number) for figure in proof.figures for number in figure.numbers]
    if rows:
        lines += [
            "",
            "| quantity | of | at | traced | beside it | published |",
            "| --- | --- | --- | --: | --: | --: |",
        ]
        lines += [_row(proof, figure, number) for figure, number in rows]
    return "\n".join([*lines, ""])


def prose(sentence: str) -> str:
    """A sentence with its formulas in backticks, so that asterisks stay asterisks."""
    parts = sentence.split("`")
    for i in range(0, len(parts), 2):
        parts[i] = FORMULA.sub(lambda found: f"`{found[0]}`" if "*" in found[0] else found[0], parts[i])
    return "`".join(parts)


def _names(proof: Proof) -> str:
    """What the names of the paper stand for."""
    each = {f"{n} = {sa.formula(read(v))}": None for f in proof.figures for n, v in proof.names_of(f).items()}
    return "".join(f"; `{name}`" for name in each)


def _figure(proof: Proof, figure: Figure) -> list[str]:
    per = f", for each of `{'*'.join(figure.per.split())}`" if figure.per else ""
    lines = [f"- {prose(figure.name)}{per}: `{sa.formula(proof.shown(figure))}`"]
    lines.append(f"  - published `{text(figure.published)}`")
    for term, why in figure.differences:
        lines.append(f"  - beside it `{sa.formula(sympy.expand(term))}`: {prose(why)}")
    if not figure.differences:
        lines.append("  - equal")
    return lines


def _row(proof: Proof, figure: Figure, number: Number) -> str:
    found, beside = proof.value(figure, number), proof.less(figure, number)
    traced = figure.value(number.sizes)
    at = ", ".join(f"{name}={size}" for name, size in number.sizes.items())
    published = f"{number.published:,}" if isinstance(number.published, int) else number.published
    shown = f"{traced:,}"
    if number.over != 1:
        over = Fraction(found)
        exact = f"{int(over):,}" if over.denominator == 1 else f"{float(over):.6g}"
        shown = f"{traced:,}, over `{text(number.over)}`: {exact}"
    cells = (prose(figure.name), prose(number.label), at, shown, f"{beside:,}" if beside else "", published)
    return f"| {' | '.join(cells)} |"


def page(sections: Iterable[str]) -> str:
    """The whole page."""
    lines = [HEAD, *sections, "## Proven in other tests", "", "| ids | formula | tests |", "| --- | --- | --- |"]
    for ids, formula, file, tests in ELSEWHERE:
        lines.append(f"| {ids} | {prose(formula)} | `tests/{file}.py`: {', '.join(f'`{test}`' for test in tests)} |")
    lines += [
        "", "The 86 pairs of a torchvision model and a crop, each with its multiply-adds and parameters: "
        "[torchvision.md](torchvision.md).", "",
        "Times, devices and several devices, and what errors those notes have: [napkin.md](napkin.md).",
    ]  # fmt: skip
    return "\n".join([*lines, ""])


def recorded(entry: Entry) -> str | None:
    """An entry's section as the page has it; None where it has none."""
    _, found, rest = ("\n" + PAGE.read_text()).partition(f"\n{heading(entry)}\n")
    return f"{heading(entry)}\n{rest.partition(chr(10) + '## ')[0]}" if found else None
