"""The record of a verification: what was run where, what was compared, what came out; for people and machines."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from symacct.printing import quantity
from symacct.report import WIDTH, Column, Section, as_markdown, as_renderables, as_text
from symacct.shown import Shown
from symacct.verify.findings import Figure, Part, Residual
from symacct.verify.perf import of_processor
from symacct.verify.timing import duration

if TYPE_CHECKING:
    from rich.console import RenderableType

_EXACT = ("calls", "B", "FLOP")  # units of which every digit counts
_COLUMNS = (Column("", "name"), Column("predicted", "value"), Column("measured", "value"), Column("verdict", "word"))
_RESIDUALS = (Column("", "value"), Column("where and what", "formula"))
_SHOWN = 10  # residuals of a part that a page shows; the JSON has all


@dataclass(frozen=True)
class Verification(Shown):
    """An account beside a real run: ``parts`` (operators, FLOPs, memory, time, counters), each with its figures.

    ``holds``: whether all that is claimed was found so. ``residuals``: where it was not, by part, largest
    first. ``str()`` is the report, ``to_json()`` the record for machines.
    """

    title: str
    inputs: str
    sizes: Mapping[str, int]
    settings: Mapping[str, Any]  # seed, steps, the loop's options, the lowering
    machine: Mapping[str, Any]
    parts: tuple[Part, ...]
    grounds: tuple[str, ...] = ()  # what the account rests on

    @property
    def holds(self) -> bool:
        """Whether nothing that is claimed was refuted."""
        return all(part.holds for part in self.parts)

    @property
    def residuals(self) -> list[Residual]:
        """All disagreements, part by part, the largest of each first."""
        return [r for part in self.parts for r in part.residuals]

    def part(self, name: str) -> Part:
        """The part of a name; raises `KeyError` with the names that there are."""
        for part in self.parts:
            if part.name == name:
                return part
        raise KeyError(f"{name!r} is none of {', '.join(p.name for p in self.parts)}")

    def figure(self, name: str) -> Figure:
        """The figure of a name, of whichever part; raises `KeyError`."""
        found = {figure.name: figure for part in self.parts for figure in part.figures}
        if name not in found:
            raise KeyError(f"{name!r} is none of {', '.join(found)}")
        return found[name]

    # -- for people ----------------------------------------------------------------------

    def report(self, width: int = WIDTH) -> str:
        """The record as plain text of the given width."""
        return as_text(self.renderables(width), width)

    def renderables(self, width: int = WIDTH) -> Iterator[RenderableType]:
        """The record for a rich console of the given width."""
        return as_renderables(self._heading(), self._sections(), self._notes(), width)

    def to_markdown(self) -> str:
        """The record in Markdown."""
        return as_markdown(self._heading(), self._sections(), self._notes())

    def __str__(self) -> str:
        return self.report()

    def _heading(self) -> list[str]:
        machine = self.machine
        failed = [part.name for part in self.parts if not part.holds]
        claimed = [part.name for part in self.parts if part.claims]
        return [
            f"{self.title}({self.inputs})",
            "at " + (", ".join(f"{n}={s:,}" for n, s in self.sizes.items()) or "the sizes of its inputs"),
            f"on {machine['device']}, torch {machine['torch']}, {machine['date']}",
            f"FAILS: {', '.join(failed)}" if failed else f"holds: {', '.join(claimed)}",
        ]

    def _sections(self) -> Iterator[Section]:
        for part in self.parts:
            rows = tuple(
                (f.name, shown(f.predicted, f.unit), shown(f.measured, f.unit), f.verdict) for f in part.figures
            )
            yield Section(part.name, _COLUMNS, rows, titled=True, notes=(*_footnotes(part), *part.notes))
            if part.residuals:
                rest = len(part.residuals) - _SHOWN
                yield Section(
                    f"{part.name}: residuals, largest first",
                    _RESIDUALS,
                    tuple((shown(r.amount, part.unit), str(r)) for r in part.residuals[:_SHOWN]),
                    notes=(f"and {rest} more; the JSON has them all",) if rest > 0 else (),
                )

    def _notes(self) -> Iterable[str]:
        loop = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        return [f"ran with {loop}", *self.grounds]

    # -- for machines --------------------------------------------------------------------

    def to_json(self) -> str:
        """Everything, with all residuals."""
        document = {
            "holds": self.holds,
            "target": self.title,
            "inputs": self.inputs,
            "sizes": dict(self.sizes),
            "settings": dict(self.settings),
            "machine": dict(self.machine),
            "parts": [{**asdict(part), "holds": part.holds} for part in self.parts],
            "grounds": list(self.grounds),
        }
        return json.dumps(document, indent=1)


def _footnotes(part: Part) -> Iterator[str]:
    """The notes of figures, each once, after the figures that it is about."""
    about: dict[str, list[str]] = {}
    for figure in part.figures:
        if figure.note:
            about.setdefault(figure.note, []).append(figure.name)
    for note, names in about.items():
        yield f"{', '.join(names)}: {note}"


def shown(value: Any, unit: str) -> str:
    """A figure as people read it: counts and bytes to the last digit, times and rates in four, shares in percent."""
    if value is None:
        return ""
    if unit in _EXACT:
        return f"{int(value):,}" + (f" {unit}" if unit != "calls" else "")
    if unit == "1":
        return f"{100 * value:.3g}%"
    if unit == "s":
        return duration(value)
    return quantity(value, unit)


# -- the machine -------------------------------------------------------------------------


def machine(device: str) -> dict[str, Any]:
    """What a record says of the machine: versions, device, driver, threads, the date (UTC)."""
    import symacct

    found: dict[str, Any] = {
        "symacct": symacct.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "kind": device,
    }
    if device == "cuda":
        found |= {"device": torch.cuda.get_device_name(), "cuda": torch.version.cuda, "driver": _driver()}
    else:
        threads = torch.get_num_threads()
        name = of_processor("model name") or platform.processor() or platform.machine()
        found |= {"device": f"{name} ({threads} thread{'s' if threads > 1 else ''})", "cores": os.cpu_count()}
    return found


def _driver() -> str:
    """The version of the NVIDIA driver, or what to say where it cannot be asked for."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return run.stdout.splitlines()[0].strip() if run.stdout else "unknown"
