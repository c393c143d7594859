"""The house: who imports whom, what importing costs, what is public and documented."""

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import symacct

ROOT = Path(symacct.__file__).parent
# From left to right: nothing imports what stands to its right.
ORDER = [
    ["errors", "progress", "repeats", "shown"],
    ["cost", "files", "hardware", "units"],
    ["printing", "device_file"],
    ["pattern"],
    ["rule"],
    ["rules"],
    ["algebra"],
    ["peak"],
    ["assumptions"],
    ["dim"],
    ["formulas"],
    ["symnode", "sources"],
    ["torch_private"],
    ["attention", "autocast"],
    ["lowering"],
    ["calls", "dim_mode", "specs", "program", "surroundings"],
    ["record", "trees"],
    ["lifetimes"],
    ["values"],
    ["memo"],
    ["known_data"],
    ["recorder"],
    ["building"],
    ["capture"],
    ["storages", "eight_bit"],
    ["timeline"],
    ["memory"],
    ["asking", "parts"],
    ["account"],
    ["graph", "check", "report"],
    ["conventions", "depth"],
    ["memory_report"],
    ["plot", "verify"],
    ["measuring", "roofline"],
    ["napkin"],
    ["tracing"],
    ["targets", "hf"],
    ["inference"],
    ["dataflow"],
    ["drawing"],
    ["reports"],
    ["page", "notebook"],
    ["cli"],
    ["__main__"],
]
# The same within the packages of it.
TORCH_PRIVATE = [
    ["autograd", "cuda_shapes", "fake", "operators", "patches", "profiler", "resizing"],
    ["cuda", "quick_shapes"],
    ["shapes"],
]
VERIFY = [
    ["findings", "profiled", "ranges", "perf", "bench"],
    ["scratch", "concrete", "operators", "ceilings"],
    ["course", "flops", "bound", "counters"],
    ["allocations", "pairing", "cuda_memory", "timing"],
    ["bytes", "memory"],
    ["verification"],
    ["verifying"],
]
FORMULAS = [
    ["expressions"],
    ["growth", "terms", "computation"],
    ["dominance", "compiled"],
    ["crossing", "grid"],
]
DEPTH = [["fitting", "templates"], ["skeleton"], ["memory"], ["structural"]]
CONVENTIONS = [["roles"], ["presets"], ["recounting"], ["explaining"]]
CLI = [["app", "console"], ["step"], ["costs", "devices", "exploring", "pictures", "questions", "reporting"]]
ROOFLINE = [
    ["operands", "kernels"],
    ["fusing"],
    ["lifting"],
    ["bounds"],
    ["rooflines"],
    ["thresholds", "utilization", "pictures"],
]
NAPKIN = [
    ["amounts", "growth", "ties", "figures", "activations", "search"],
    ["admissible", "question", "states", "collectives", "tokens", "optimizers"],
    ["solving", "moving", "parallel", "training"],
    ["six", "budgets"],
]
INFERENCE = [["bounds", "cached", "cache"], ["attention", "fit", "speculative"], ["result"], ["making", "overview"]]
REPORTS = [
    ["dimensions"],
    ["figures", "mathematics"],
    ["views"],
    ["provenance", "forms", "notes"],
    ["filters", "questions", "faults"],
    ["environment"],
    ["rendering"],
    ["command"],
]
DATAFLOW = [["flows", "times"], ["networks"], ["paths", "cuts"]]
NOTEBOOK = [["pages"], ["html"], ["showing"]]
DRAWING = [
    ["model", "places", "naming", "fits", "colours", "programs"],
    ["shares", "sorting"],
    ["clustering", "columns", "wording"],
    ["building", "caption"],
    ["making", "dot"],
    ["live", "rendering"],
]
PAGE = [["javascript", "variants"], ["parts"], ["lifetimes", "graphs"], ["content"], ["rendering"]]
HF = [["layout", "reading"], ["sizes", "tasks"], ["found"]]
# Methods of Account that hand over to what stands to the right of it import that when they are called.
LATE = {("account", name) for name in ("graph", "check", "report", "verify", "conventions")}
LATE |= {("asking", name) for name in ("report", "memory_report", "plot", "roofline", "napkin", "reports")}
LATE |= {("asking", name) for name in ("account", "dataflow", "drawing", "page")}
LATE |= {("parts", "account"), ("fit", "result"), ("shown", "notebook")}
LATE |= {("depth", "verify"), ("depth", "conventions")}
FILES = sorted(ROOT.rglob("*.py"))


def label(path):
    """ "account", "verify.flops"."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def ranks(order):
    """How far to the right each name stands."""
    return {name: rank for rank, names in enumerate(order) for name in names}


def imports(path):
    """(module, at top level) for each module of symacct that a file imports, "verify.flops" of a package's own."""
    tree = ast.parse(path.read_text())
    later = (ast.FunctionDef, ast.ClassDef)
    now = [n for n in tree.body if not isinstance(n, later) and not ast.unparse(n).startswith("if TYPE_CHECKING")]
    top = set(ast.walk(ast.Module(now, [])))
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "symacct":
            names = [node.module] if node.module != "symacct" else [f"symacct.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names if a.name.startswith("symacct.")]
        for name in names:
            yield name.removeprefix("symacct."), node in top


@pytest.mark.parametrize("path", [p for p in FILES if p.stem != "__init__"], ids=label)
def test_imports_point_left(path):
    """No file imports one that stands to its right, in the package and within a package of it."""
    package, _, file = label(path).rpartition(".")
    inner = {"verify": VERIFY, "torch_private": TORCH_PRIVATE, "hf": HF, "formulas": FORMULAS, "depth": DEPTH}
    inner |= {"conventions": CONVENTIONS, "cli": CLI, "roofline": ROOFLINE, "napkin": NAPKIN}
    inner |= {"inference": INFERENCE, "reports": REPORTS, "dataflow": DATAFLOW, "notebook": NOTEBOOK}
    inner |= {"drawing": DRAWING, "page": PAGE}
    for order, own, within in ((ORDER, package or file, ""), (inner.get(package), file, f"{package}.")):
        if order is None:
            continue
        rank = ranks(order)
        assert own in rank
        for module, top in imports(path):
            name = module.removeprefix(within).split(".")[0]
            if not module.startswith(within) or name not in rank or name == own:
                continue
            if (own, name) in LATE:
                assert not top
            else:
                assert rank[name] <= rank[own], f"{label(path)} imports {module}"


def test_rules_need_no_torch():
    """A rule file imports costs and rules, and neither torch nor the engine."""
    for path in (
        Path(sys.modules["symacct.rules"].__file__) if "symacct.rules" in sys.modules else _rules()
    ).parent.glob("*.py"):
        text = path.read_text()
        assert "import torch" not in text
        for module in (name.split(".")[0] for name, _ in imports(path)):
            assert module in ("cost", "rule", "rules", "pattern", "errors"), f"rules/{path.name} imports {module}"


def _rules():
    import symacct.rules

    return Path(symacct.rules.__file__)


def test_private_torch_is_in_one_place():
    """Only the package torch_private imports or names what torch keeps to itself."""
    for path in FILES:
        if label(path).split(".")[0] == "torch_private":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
                private = [p for p in (node.module or "").split(".") if p.startswith("_")]
                names = [a.name for a in node.names if a.name.startswith("_") and a.name != "_pytree"]
                assert not private + names, f"{path.name}: {ast.unparse(node)}"
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
                assert not node.attr.startswith("_") or node.attr.endswith("__"), f"{path.name}: torch.{node.attr}"
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("_cdata", "_schema", "_opname", "_has_symbolic_sizes_strides"), path.name


def in_fresh_python(code):
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_is_light():
    """`import symacct` alone loads neither torch nor SymPy; tracing needs none of the optional libraries."""
    code = "import sys, json, symacct; print(json.dumps([m for m in ('torch', 'sympy', 'rich') if m in sys.modules]))"
    assert json.loads(in_fresh_python(code)) == []
    code = (
        "import sys, json, symacct as sa\n"
        "from torch import nn\n"
        "account = sa.trace(sa.build(lambda D: nn.Linear(D, D)), 'B D')\n"
        "extra = 'transformers torchvision jinja2 matplotlib rich typer numpy networkx graphviz'.split()\n"
        "print(json.dumps([m for m in extra if m in sys.modules]))"
    )
    loaded = set(json.loads(in_fresh_python(code)))
    assert loaded <= {"numpy", "jinja2"}  # torch itself loads these where they are installed


def test_a_checkout_finds_its_rules():
    """Python started in a checkout imports the package there, with the rules beside it, whatever is installed."""
    code = "import symacct, symacct.rules; print(len(symacct.default_rules()) > 500)"
    installed = [p for p in sys.path if "site-packages" in p]  # without the hook of an editable install
    run = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path += {installed!r}\n{code}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    assert run.stdout == "True\n", run.stderr


def test_public_names():
    """Every public name resolves, is listed once, and says what it is."""
    assert sorted(symacct.__all__) == sorted(set(symacct.__all__))
    for name in symacct.__all__:
        found = getattr(symacct, name)
        if name != "__version__":
            assert inspect.getdoc(found), name
    assert set(symacct.__all__) == set(dir(symacct))
    with pytest.raises(AttributeError, match="module 'symacct' has no attribute 'nothing'"):
        _ = symacct.nothing


def test_public_functions_and_classes_are_documented():
    """Every function, class and method without a leading underscore has a docstring, and so has every file."""
    for path in [*FILES, *_rules().parent.glob("*.py")]:
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree), path
        public = (ast.FunctionDef, ast.ClassDef)
        classes = [c for c in tree.body if isinstance(c, ast.ClassDef) and not c.name.startswith("_")]
        for node in [*tree.body, *(m for c in classes for m in c.body)]:
            overload = any(getattr(d, "id", "") == "overload" for d in getattr(node, "decorator_list", []))
            if isinstance(node, public) and not node.name.startswith("_") and not overload:
                short_protocol = path.stem == "symnode"  # torch's names, documented by torch
                assert ast.get_docstring(node) or short_protocol, f"{path.name}: {node.name}"


def test_errors_form_one_tree():
    """Every error of symacct is a SymacctError, and the docstring of errors.py names each."""
    from symacct import errors

    for name, found in vars(errors).items():
        if isinstance(found, type) and issubclass(found, BaseException):
            assert issubclass(found, errors.SymacctError)
            assert name in errors.__doc__
