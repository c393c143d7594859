"""The graph of a step as data flows through it: which node needs what another one made.

`flows` finds that out, `networks` gives it to networkx, `times` knows how long each node takes at the least, `paths`
asks for the critical path, `cuts` for what goes from one part to the rest.
"""

from symacct.dataflow.cuts import Crossing, CrossingTensor, crossing
from symacct.dataflow.networks import to_networkx, write_graph
from symacct.dataflow.paths import CriticalPath, critical_path

__all__ = [
    "CriticalPath",
    "Crossing",
    "CrossingTensor",
    "critical_path",
    "crossing",
    "to_networkx",
    "write_graph",
]
