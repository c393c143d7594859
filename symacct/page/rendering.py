"""A page as one file: content, programs, styles and libraries in a template."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from symacct.account import Account
from symacct.device_file import device_or_file
from symacct.files import must_be_writable, replacing
from symacct.hardware import Device
from symacct.page.content import content
from symacct.page.variants import DEFAULT, variants
from symacct.progress import say

GRAPHVIZ = "vendor/viz-global.js"  # by far the largest: packed, and unpacked when a graph is wanted
STYLES = ("vendor/uPlot.min.css", "static/style.css")
LIBRARIES = ("vendor/uPlot.iife.min.js", "vendor/svg-pan-zoom.min.js")
SCRIPTS = (
    "exact", "words", "elements", "model", "state", "controls", "totals", "memory", "tables", "moments", "timeline",
    "roofs", "roofline", "panel", "placing", "graph", "main",
)  # fmt: skip


def to_html(
    account: Account, path: str | Path | None = None, *, device: str | Device = "h100",
    dtypes: Iterable[str] = DEFAULT,
) -> str:  # fmt: skip
    """A page in which the account's sizes, dtype and device can be moved; ``path`` also gets it.

    The file needs no other and no network. It starts at the account's sizes, or its trial sizes. ``device``: that
    times are of at first, a name of the table, "FILE.toml:NAME" or a `Device`. ``dtypes``: others in which the step
    is traced anew, to be chosen from: "bf16", "autocast bf16", ...; an empty list for none.

    Raises `SpecError` for a file that cannot be written or a dtype that is none, `DeviceError` for an unknown device.
    """
    if path is not None:
        must_be_writable(path, "explore")
    found = device_or_file(device)
    say("writing the page")
    text = _page(content(account, variants(account, dtypes), found))
    if path is not None:
        with replacing(path, "explore") as file:
            file.write(text.encode())
    return text


def _page(what: dict[str, Any]) -> str:
    template = Environment(autoescape=True, keep_trailing_newline=True).from_string(_read("static/page.html.j2"))
    return template.render(
        title=what["title"],
        styles=[Markup(_read(name)) for name in STYLES],
        scripts=[_script(_read(name)) for name in (*LIBRARIES, *(f"static/{name}.js" for name in SCRIPTS))],
        graphviz=Markup(_packed(_read(GRAPHVIZ))),
        content=Markup(_json(what)),
    )


def _read(name: str) -> str:
    return files("symacct.page").joinpath(name).read_text(encoding="utf-8")


def _script(source: str) -> Markup:
    """A script that no text within it can end."""
    return Markup(source.replace("</script", "<\\/script"))


def _packed(source: str) -> str:
    """A text deflated and in base64."""
    return base64.b64encode(zlib.compress(source.encode(), 9)).decode()


def _json(what: dict[str, Any]) -> str:
    """JSON that can stand in a script element: no "<" opens a tag, and keys stay in order."""
    return json.dumps(what, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
