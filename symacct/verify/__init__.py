"""An account beside a run of the real model, with real tensors, on a real device, node by node.

`verify` runs the model (`concrete`) under torch's profiler (`profiled`), under FlopCounterMode and under a clock, and
compares: `operators`, `flops`, `bytes`, `memory` (`allocations`, `course`, `pairing`, `scratch`, `cuda_memory`),
`timing` (`bound`, `ceilings`, `bench`), `counters` (`perf`). What comes out are `findings`, kept in a `verification`.
"""

from symacct.verify.findings import Figure, Part, Residual
from symacct.verify.verification import Verification
from symacct.verify.verifying import verify

__all__ = ["Figure", "Part", "Residual", "Verification", "verify"]
