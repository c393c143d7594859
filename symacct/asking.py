"""What can be asked of an account beside its sums: each question is handed over to the package that answers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from symacct.errors import SpecError
from symacct.shown import Shown

if TYPE_CHECKING:
    import networkx

    from symacct.account import Account
    from symacct.dataflow import CriticalPath, Crossing
    from symacct.drawing import Drawing
    from symacct.formulas.dominance import Elasticities, Shares
    from symacct.formulas.terms import Expressed
    from symacct.hardware import Device
    from symacct.napkin import Answer, Training
    from symacct.parts import NodeCost
    from symacct.roofline import Roofline, Utilization


class Asked(Shown):
    """The base of `symacct.account.Account` with what others answer; they are imported when they are asked."""

    @property
    def _account(self) -> Account:
        return cast("Account", self)

    # -- times, and what fits ---------------------------------------------------------------

    def roofline(self, device: str | Device, tf32: bool = False, level: str = "eager") -> Roofline:
        """The least time on a device and what limits it, by phase, module and op (`symacct.roofline`).

        ``device``: a name ("h100"), "FILE.toml:NAME", or a `Device`. ``level``: bytes as "eager" runs them, ideally
        "fused", or "minimal".
        """
        from symacct.roofline import roofline

        return roofline(self._account, device, tf32, level)

    def mfu(self, seconds: Any, device: str | Device, devices: int = 1, **options: Any) -> Utilization:
        """Model FLOPs utilization of a step that took so long (`symacct.roofline.mfu`)."""
        from symacct.roofline import mfu

        return mfu(self._account, seconds, device, devices, **options)

    def solve(self, name: str, /, **conditions_and_sizes: Any) -> Answer:
        """The largest size of a dim that fits: ``solve("B", peak_bytes="80 GB", L=4096)`` (`symacct.napkin.solve`)."""
        from symacct.napkin import solve

        return solve(self._account, name, **conditions_and_sizes)

    def training(self, **options: Any) -> Training:
        """How long a training takes and what it costs: ``tokens``, ``device``, ``mfu`` ... (`symacct.napkin`)."""
        from symacct.napkin import training

        return training(self._account, **options)

    # -- other names, and what dominates ---------------------------------------------------

    def express(self, **names: Any) -> Expressed:
        """The account in other names: ``express(D="H*Dh", P="params").forward.flops`` (`symacct.formulas.terms`)."""
        from symacct.formulas.terms import expressed

        return expressed(self._account, **names)

    def shares(
        self, of: str = "flops", by: str = "term", phase: str | None = None, depth: int | None = 1, **sizes: int
    ) -> Shares:
        """What a figure is made of at given sizes, the largest first: by "term", "module", "op" or "phase"."""
        from symacct.formulas.dominance import shares

        return shares(self._account, of=of, by=by, phase=phase, depth=depth, **sizes)

    def elasticities(self, of: str = "flops", phase: str | None = None, **sizes: int) -> Elasticities:
        """By how many percent a figure grows for one percent more of each dim, at given sizes."""
        from symacct.formulas.dominance import elasticities

        return elasticities(self._account, of=of, phase=phase, **sizes)

    # -- words ---------------------------------------------------------------------------

    def report(self, depth: int = 1) -> str:
        """The account as plain text: phases, modules to a depth, ops, unknown ops, assumptions."""
        from symacct.report import to_text

        return to_text(self._account, depth=depth)

    def memory_report(
        self, depth: int = 1, top: int = 10, form: str = "text", least: Mapping[str, int] | None = None
    ) -> str:
        """Memory for people and machines: closed forms, the moments that can be the peak, what is alive at the peak.

        ``form``: "text", "markdown" or "json". ``least``: least sizes of dims, so that fewer moments can win.
        """
        from symacct import memory_report

        if form == "json":
            return memory_report.to_json(self._account, least)
        if form not in ("text", "markdown"):
            raise SpecError(f"form: {form!r} is none of text, markdown, json")
        write = memory_report.to_text if form == "text" else memory_report.to_markdown
        return write(self._account, depth, top, least)

    def render_report(self, template: str, path: Any = None, **options: Any) -> str:
        """A report from a Jinja2 template, built in or your own (`symacct.reports.render`); ``path`` also gets it."""
        from symacct.reports import render, write

        return (
            render(template, self._account, **options)
            if path is None
            else write(path, template, self._account, **options)
        )

    def plot_memory(self, path: Any = None, step: str = "later") -> Any:
        """The timeline at the account's sizes as a matplotlib figure; ``path`` (.png or .svg) also gets it."""
        from symacct.plot import plot_memory

        return plot_memory(self._account, path, step)

    def render(self, path: Any, **options: Any) -> Drawing:
        """Draw the step with its costs: ``render("model.svg", cost="flops", phase=, depth=)`` (`symacct.drawing`).

        ``path`` ends in .svg, .png, .pdf or .dot.
        """
        from symacct.drawing import render

        return render(self._account, path, **options)

    def to_html(self, path: Any = None, **options: Any) -> str:
        """A page in one file, in which sizes, dtype and device can be moved (`symacct.page.to_html`)."""
        from symacct.page import to_html

        return to_html(self._account, path, **options)

    def to_networkx(self, device: str | Device | None = None) -> networkx.DiGraph:
        """The dataflow graph with costs, shapes, phases and module paths (`symacct.dataflow.to_networkx`)."""
        from symacct.dataflow import to_networkx

        return to_networkx(self._account, device)

    def critical_path(self, device: str | Device) -> CriticalPath:
        """The chain of nodes that wait for each other which takes longest (`symacct.dataflow.critical_path`)."""
        from symacct.dataflow import critical_path

        return critical_path(self._account, device)

    def crossing(self, first: str | Callable[[NodeCost], bool]) -> Crossing:
        """The tensors that leave a phase, a module or chosen nodes, largest first (`symacct.dataflow.crossing`)."""
        from symacct.dataflow import crossing

        return crossing(self._account, first)

    def to_latex(self) -> str:
        """The figures of the step as a LaTeX document (the report "summary")."""
        return self.render_report("summary", form="latex")

    def to_markdown(self, depth: int = 1) -> str:
        """The same tables in Markdown."""
        from symacct.report import to_markdown

        return to_markdown(self._account, depth=depth)

    def to_json(self, depth: int | None = None) -> str:
        """Everything for machines; formulas are strings, values numbers where sizes are given."""
        from symacct.report import to_json

        return to_json(self._account, depth=depth)
