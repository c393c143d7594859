"""Reports from templates: which template, in which form, with which names in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from symacct.account import Account
from symacct.device_file import device_or_file
from symacct.errors import ReportError
from symacct.files import must_be_writable, replacing
from symacct.hardware import Device
from symacct.inference import Inference
from symacct.reports.environment import Loader, environment
from symacct.reports.faults import argument, close, explained
from symacct.reports.filters import filters
from symacct.reports.forms import FORMS, SUFFIXES, Form
from symacct.reports.notes import foot_lines
from symacct.reports.provenance import provenance
from symacct.reports.questions import InferenceView, questions, steps_of
from symacct.reports.views import DeviceView, Memo, View

BUILT_IN = ("summary", "training", "inference", "comparison")
_ENDINGS = (".j2", ".jinja", ".jinja2")
Sizes = Mapping[str, int]


def render(
    template: str | Path, account: Account | Inference | None = None, *, accounts: Mapping[str, Account] | None = None,
    device: str | Device | None = None, sizes: Sizes | Sequence[Sizes] | None = None, form: str | None = None,
    **context: Any,
) -> str:  # fmt: skip
    """A report: a template with the figures of an account put in.

    ``template``: "summary", "training", "inference", "comparison", or the path of a Jinja2 template of one's own.
    ``account``: of a step; for "inference", what `symacct.inference.inference` gives. ``accounts``: several by name,
    to be compared. ``sizes``: where to take them; with several (a list), the account at each of these is compared.
    ``device``: a name of the table, "FILE.toml:NAME" or a `Device`. ``form``: "markdown", "html" or "latex", where the
    template's suffix does not say it (``mine.html.j2``). ``context``: more names for the template.

    Raises `ReportError`, with the template's file and line, for what is wrong in it or missing for it, and what
    `Account.at` and `device_or_file` raise.
    """
    return _Report(template, account, accounts, device, sizes, form, context).render()


def write(path: str | Path, template: str | Path, account: Account | Inference | None = None, **options: Any) -> str:
    """Write a report, in the form of the file's suffix (.md, .html, .tex), and give it; the options are `render`'s.

    Raises `SpecError` for a file that cannot be written, and what `render` raises.
    """
    must_be_writable(path, "report")
    own = str(template) not in BUILT_IN and _form_of(_stem(template)) is not None
    if options.get("form") is None and not own:
        options["form"] = _form_of(Path(path).name)
        if options["form"] is None:
            raise ReportError(f"{path}: name the file with one of {', '.join(_suffixes())}, or say which form")
    text = render(template, account, **options)
    with replacing(path, "report") as file:
        file.write(text.encode())
    return text


# -- which form --------------------------------------------------------------------------


def _stem(template: str | Path) -> str:
    name = Path(template).name
    return next((name.removesuffix(ending) for ending in _ENDINGS if name.endswith(ending)), name)


def _form_of(name: str) -> str | None:
    return SUFFIXES.get(Path(name).suffix.lower())


def _suffixes() -> list[str]:
    return [form.suffix for form in FORMS.values()]


def _chosen(template: str | Path, form: str | None) -> Form:
    if form is not None and form not in FORMS:
        raise ReportError(f"form: {form!r} is none of {', '.join(FORMS)}")
    name = form or _form_of(_stem(template)) or ("markdown" if str(template) in BUILT_IN else None)
    if name is None:
        named = ", ".join(f"report{suffix}.j2" for suffix in _suffixes())
        raise ReportError(f"{template}: its name does not say which form it has, as {named} do; or give form=")
    return FORMS[name]


# -- one report --------------------------------------------------------------------------


class _Report:
    """A template and what it is filled in with."""

    def __init__(
        self, template: str | Path, account: Any, accounts: Any, device: Any, sizes: Any, form: str | None,
        context: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.built_in = str(template) if str(template) in BUILT_IN else None
        self.main = None if self.built_in else _existing(template)
        self.form = _chosen(template, form)
        if self.built_in == "inference" and not isinstance(account, Inference):
            raise ReportError(
                "inference: the report needs a model with its cache, from symacct.inference.inference, not "
                f"{'an account of one step' if isinstance(account, Account) else type(account).__name__}"
            )
        self.made = None
        if isinstance(account, Inference):
            self.made = account.at(**sizes) if sizes else account
            account, accounts, sizes = None, {**steps_of(self.made), **(accounts or {})}, None
        self.accounts = _accounts(account, accounts, sizes)
        if self.built_in and not self.accounts:
            raise ReportError(f"{self.built_in}: the report needs an account, as sa.trace gives it")
        if self.built_in == "comparison" and len(self.accounts) < 2:
            raise ReportError(
                "comparison: there is one account; give accounts={name: account, ...}, or several sizes of one"
            )
        self.device = device_or_file(device) if device is not None else None
        self.more: list[str] = []
        self.footed = False
        self.context = {**self._names(), **context}

    def render(self) -> str:
        """The report as text."""
        loader = Loader(self.main)
        name = self.built_in or str(self.main)
        try:
            text = environment(self.form, loader, self.context).get_template(name).render(self.context)
        except ReportError:
            raise
        except Exception as error:  # a template can raise anything
            shown = f"symacct's own {name}.j2" if self.built_in else name
            raise explained(error, loader.files, filters(self.form), shown) from error
        text = self._with_foot(text)
        return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n" if self.built_in else text

    def _names(self) -> dict[str, Any]:
        """What a template finds."""
        memo = Memo()
        views = {name: View(account, memo) for name, account in self.accounts.items()}
        first = next(iter(views.values()), None)
        device = DeviceView(self.device) if self.device is not None else None
        names: dict[str, Any] = {
            "accounts": views,
            "form": self.form,
            "layout": f"layout{self.form.suffix}",
            "foot": self._foot,
            "provenance": lambda figure, depth=None, top=6: provenance(figure, depth, top),
            **questions(self.device, self.more),
        }
        if self.made is not None:
            names["inference"] = InferenceView(self.made, self.more)
        if first is not None:
            sizes = first._account.sizes
            names |= {"acct": first, "account": first, "sizes": dict(sizes or {}), "numbers": _has_numbers(views)}
        return names | ({"device": device} if device is not None else {})

    def _foot(self) -> Markup:
        self.footed = True
        return self.form.notes(foot_lines(self.accounts, self.device, self.more))

    def _with_foot(self, text: str) -> str:
        """A report whose template has no foot gets one at its end."""
        if self.footed or not (self.accounts or self.device):
            return text
        end = {"html": "</body>", "latex": r"\end{document}"}.get(self.form.name, "")
        before, mark, after = text.rpartition(end) if end and end in text else (text, "", "")
        return f"{before.rstrip()}\n\n{self._foot()}{mark}{after}"


def _has_numbers(views: Mapping[str, View]) -> bool:
    return all(view._account.sizes is not None or not view._account.dims for view in views.values())


def _existing(template: str | Path) -> Path:
    path = Path(template)
    if path.is_file():
        return path
    hint = close(str(template), BUILT_IN)
    raise ReportError(f"there is no template {str(template)!r}{hint}; built in are {', '.join(BUILT_IN)}")


def _accounts(account: Any, accounts: Any, sizes: Any) -> dict[str, Account]:
    """The accounts by name, at the sizes."""
    several = not isinstance(sizes, Mapping) and sizes is not None
    if accounts is not None and not isinstance(accounts, Mapping):
        raise argument(accounts, "accounts", "accounts by name")
    named = {**({account_name(account): account} if account is not None else {}), **(accounts or {})}
    for name, each in named.items():
        if not isinstance(each, Account):
            raise argument(each, "account" if each is account else f"accounts[{name!r}]", "an account, from sa.trace")
    if several and len(named) == 1:
        (each,) = named.values()
        return {setting_name(each_sizes, sizes): each.at(**each_sizes) for each_sizes in sizes}
    if several:
        raise ReportError("sizes: several settings are for one account; give accounts that are at their sizes already")
    if sizes:
        return {name: each.at(**sizes) for name, each in named.items()}
    return {name: _settled(each) for name, each in named.items()}


def _settled(account: Account) -> Account:
    """An account without dims is one in numbers."""
    return account if account.sizes is not None or account.dims else account.at()


def account_name(account: Any) -> str:
    """What an account is called among several."""
    return getattr(account, "title", "") or "account"


def setting_name(sizes: Sizes, among: Sequence[Sizes]) -> str:
    """Sizes as a name: those that differ between settings."""
    differing = [name for name in sizes if len({each.get(name) for each in among}) > 1]
    return ", ".join(f"{name}={sizes[name]:,}" for name in differing or sizes)
