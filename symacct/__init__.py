"""symacct: what a PyTorch model costs, in closed form.

>>> import symacct as sa
>>> from torch import nn
>>> model = sa.build(lambda D, K: nn.Sequential(nn.Linear(D, D, bias=False), nn.Linear(D, K, bias=False)))
>>> print(sa.trace(model, "B D").forward)
2*B*D*K + 2*B*D**2
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symacct import inference, napkin, reports, roofline
    from symacct.account import Account
    from symacct.assumptions import Assumption
    from symacct.building import build
    from symacct.conventions.presets import Convention
    from symacct.cost import Call, Cost, TensorMeta
    from symacct.device_file import device_or_file as device
    from symacct.dim import Dim, dims
    from symacct.eight_bit import AdamW8bit
    from symacct.errors import SymacctError
    from symacct.formulas.compiled import compile_expressions
    from symacct.formulas.crossing import crossover
    from symacct.formulas.dominance import elasticities, shares
    from symacct.formulas.growth import asymptotic, collected, leading
    from symacct.formulas.terms import express
    from symacct.hardware import Device, devices
    from symacct.hf import FromConfig, from_config
    from symacct.measuring import measure_device
    from symacct.parts import Phase
    from symacct.printing import formula
    from symacct.rule import Rules
    from symacct.rules import default_rules
    from symacct.specs import Spec, spec
    from symacct.tracing import trace

__version__ = "0.1.0"

# In a checkout the rules lie beside the package, not in it. Whoever starts Python there imports this
# folder even with symacct installed, and shall find them too.
_beside = Path(__file__).parent.parent
if not (Path(__file__).parent / "rules").is_dir() and (_beside / "rules" / "weights.py").is_file():
    __path__.append(str(_beside))

# Names are imported on first use, so that `import symacct` costs nothing of its own.
_HOME = {
    "Account": "account",
    "AdamW8bit": "eight_bit",
    "Assumption": "assumptions",
    "Call": "cost",
    "Convention": "conventions.presets",
    "Cost": "cost",
    "Device": "hardware",
    "Dim": "dim",
    "FromConfig": "hf",
    "Phase": "parts",
    "Rules": "rule",
    "Spec": "specs",
    "SymacctError": "errors",
    "TensorMeta": "cost",
    "asymptotic": "formulas.growth",
    "build": "building",
    "collected": "formulas.growth",
    "compile_expressions": "formulas.compiled",
    "crossover": "formulas.crossing",
    "default_rules": "rules",
    "device": "device_file:device_or_file",
    "devices": "hardware",
    "dims": "dim",
    "elasticities": "formulas.dominance",
    "express": "formulas.terms",
    "formula": "printing",
    "from_config": "hf",
    "inference": "inference:*",
    "leading": "formulas.growth",
    "measure_device": "measuring",
    "napkin": "napkin:*",
    "reports": "reports:*",
    "roofline": "roofline:*",
    "shares": "formulas.dominance",
    "spec": "specs",
    "trace": "tracing",
}
__all__ = [
    "Account",
    "AdamW8bit",
    "Assumption",
    "Call",
    "Convention",
    "Cost",
    "Device",
    "Dim",
    "FromConfig",
    "Phase",
    "Rules",
    "Spec",
    "SymacctError",
    "TensorMeta",
    "__version__",
    "asymptotic",
    "build",
    "collected",
    "compile_expressions",
    "crossover",
    "default_rules",
    "device",
    "devices",
    "dims",
    "elasticities",
    "express",
    "formula",
    "from_config",
    "inference",
    "leading",
    "measure_device",
    "napkin",
    "reports",
    "roofline",
    "shares",
    "spec",
    "trace",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'symacct' has no attribute {name!r}")
    module, _, attribute = _HOME[name].partition(":")
    value = import_module(f"symacct.{module}")
    if attribute != "*":  # else the module itself
        value = getattr(value, attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
