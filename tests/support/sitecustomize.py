"""Lets a torchvision whose compiled ops do not load beside this torch be imported for its models.

torchvision registers shape functions for two of its compiled ops (nms, qnms) at import, which
fails when its shared library was built for another torch. Its classification models need neither op, so
before torchvision is imported the two are declared, without kernels. Python imports this file at start
when its folder is on PYTHONPATH; the tests' conftest.py imports it too.
"""

import importlib.abc
import sys

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_libraries = []


class _BeforeTorchvision(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname == "torchvision" and not _libraries:
            import torch

            _libraries.append(torch.library.Library("torchvision", "FRAGMENT"))
            for schema in _SCHEMAS:
                if not hasattr(torch.ops.torchvision, schema.partition("(")[0]):
                    _libraries[0].define(schema)
        return None


sys.meta_path.insert(0, _BeforeTorchvision())
