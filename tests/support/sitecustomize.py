"""Lets a torchvision whose compiled ops do not load beside this torch be imported for its models.

torchvision registers shape functions for two of its compiled ops (nms, qnms) at import, which
fails when its shared library was built for another torch. Its classification models need neither op, so
before torchvision is imported the two are declared, without kernels. Python imports this file at start
when its folder is on PYTHONPATH; the tests' conftest.py imports it too.
"""

import importlib.abc
import importlib.machinery
import sys
from pathlib import Path

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_libraries = []


class _BeforeTorchvision(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname == "torchvision" and not _libraries:
            import torch

            found = importlib.machinery.PathFinder.find_spec(fullname, path)
            if found is None or _loads(Path(found.origin).parent, torch):
                return None
            _libraries.append(torch.library.Library("torchvision", "FRAGMENT"))
            for schema in _SCHEMAS:
                _libraries[0].define(schema)
        return None


def _loads(folder, torch):
    """Whether torchvision's compiled ops load beside this torch; then there is nothing to declare."""
    for library in folder.glob("_C*.so"):
        try:
            torch.ops.load_library(str(library))
        except OSError:
            return False
    return True


sys.meta_path.insert(0, _BeforeTorchvision())
