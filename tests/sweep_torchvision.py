"""Every classification model of torchvision, its account beside torchvision's own figures.

    python tests/sweep_torchvision.py            # prints the table
    python tests/sweep_torchvision.py --write    # and puts it into docs/torchvision.md

The figures are those of the weights' metadata, in tests/data/torchvision.csv: ``gmacs`` (published as
GFLOPS, in truth 1e9 multiply-adds) and ``params``.
"""

import csv
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "torchvision.md"
BEGIN, END = "<!-- begin generated table -->\n", "<!-- end generated table -->\n"
# The published GoogLeNet has its two auxiliary heads removed after training; Inception keeps its one.
OPTIONS = {
    "googlenet": {"aux_logits": False, "init_weights": False},
    "inception_v3": {"init_weights": False},
}


def published():
    """(model, crop) -> (gmacs as printed, params); weights of one model at one crop agree."""
    with (TESTS / "data" / "torchvision.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["crop_size"]]
    known = _classification()
    found = {}
    for row in rows:
        if row["model"] in known:
            figures = row["gmacs"], int(row["params"])
            key = row["model"], int(row["crop_size"])
            if found.setdefault(key, figures) != figures:
                raise ValueError(f"{key} has figures that disagree: {found[key]} and {figures}")
    return found


def _classification():
    from torchvision import models

    return set(models.list_models(module=models))


def account_of(model, crop, **options):
    """The account of one model in eval mode: forward only, the batch as a dim."""
    from torchvision import models

    import symacct as sa

    kwargs = {**OPTIONS.get(model, {}), **options}
    if model.startswith("vit_") and crop != 224:
        kwargs["image_size"] = crop
    built = sa.build(lambda: models.get_model(model, **kwargs))
    return sa.trace(built, f"B 3 {crop} {crop}", train=False)


def as_published(account):
    """Multiply-adds of one image, exactly and as torchvision prints them: in 1e9, to three decimals.

    A part that does not grow with the batch (Swin v2 computes its position bias once) counts for the one image.
    """
    macs, rest = divmod(account.at(B=1).forward.flops, 2)
    if rest:
        raise ValueError(f"{account.title}: an odd number of FLOPs")
    return macs, str(round(macs / 1e9, 3))


def main(write):
    import torch
    import torchvision

    lines = [
        "| model | crop | forward, FLOP | multiply-adds at B=1 | in 1e9 | published | parameters | published | |",
        "|---|" + "--:|" * 7 + "---|",
    ]
    good = 0
    figures = published()
    for (model, crop), (gmacs, params) in sorted(figures.items()):
        begin = time.perf_counter()
        account = account_of(model, crop)
        macs, ours = as_published(account)
        same = ours == str(float(gmacs)) and int(account.params) == params and not account.unknown
        good += same
        lines.append(
            f"| {model} | {crop} | {account.forward} | {macs} | {ours} | {gmacs} | {account.params} | {params} "
            f"| {'equal' if same else 'DIFFERS'} |"
        )
        print(f"{lines[-1]}  {time.perf_counter() - begin:.1f} s", flush=True)
    summary = f"{good} of {len(figures)} equal, with torch {torch.__version__}, torchvision {torchvision.__version__}."
    print(summary)
    if write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        table = "\n".join([summary, "", *lines])
        PAGE.write_text(f"{before}{BEGIN}\n{table}\n\n{END}{rest.partition(END)[2]}")
    return 0 if good == len(figures) else 1


if __name__ == "__main__":
    sys.path.insert(0, str(TESTS / "support"))
    import sitecustomize  # noqa: F401 - makes torchvision importable

    raise SystemExit(main("--write" in sys.argv))
