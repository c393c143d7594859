"""Questions that people answer on a napkin, from accounts: what fits, how long, at what cost, over which wire.

`question` and `solving` find the largest size that fits, `training` and `budgets` tell time and money, `six` the
distance to 6*N*D, `states` what stays per parameter, `activations` the formulas of papers, `moving` checkpoints, data
and transfers, `collectives` and `parallel` what many devices send each other, `optimizers` what Muon adds.
"""

from symacct.napkin.budgets import Budget, budget
from symacct.napkin.collectives import Communication, collective
from symacct.napkin.moving import Checkpoint, Loading, Transfer, checkpoint, loading, transfer
from symacct.napkin.parallel import Parallel, parallel
from symacct.napkin.question import Condition
from symacct.napkin.six import RuleOfSix, rule_of_six
from symacct.napkin.solving import Answer, Found, solve
from symacct.napkin.states import (
    POLICIES,
    DevicesNeeded,
    LargestModel,
    Policy,
    States,
    devices_needed,
    largest_model,
    states,
)
from symacct.napkin.training import MARKERS, Training, training

__all__ = [
    "MARKERS",
    "POLICIES",
    "Answer",
    "Budget",
    "Checkpoint",
    "Communication",
    "Condition",
    "DevicesNeeded",
    "Found",
    "LargestModel",
    "Loading",
    "Parallel",
    "Policy",
    "RuleOfSix",
    "States",
    "Training",
    "Transfer",
    "budget",
    "checkpoint",
    "collective",
    "devices_needed",
    "largest_model",
    "loading",
    "parallel",
    "rule_of_six",
    "solve",
    "states",
    "training",
    "transfer",
]
