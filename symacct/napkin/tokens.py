"""How many tokens a step has."""

from __future__ import annotations

from typing import Any

from symacct.account import Account
from symacct.algebra import evaluate
from symacct.conventions.roles import roles_of
from symacct.errors import SpecError, UnknownDimError
from symacct.formulas.expressions import read
from symacct.napkin.amounts import reduced


def tokens_of(account: Account, given: Any = None, needed: bool = True) -> Any:
    """Tokens of a step: as given ("B*L"), the indices of the token embedding, or the leading axes of the first input.

    A number in an account at sizes. Raises `SpecError` where nothing tells, unless it is not ``needed``: None then.
    """
    if given is None:
        members = getattr(account, "members", None)  # of any depth: each reads the same tokens
        plain = next(iter(members.values())) if members else getattr(account, "plain", None) or account
        found = roles_of(plain.symbolic).tokens
        if found is None and not needed:
            return None
        if found is None:
            raise SpecError('nothing in the trace tells how many tokens a step has; give them, such as tokens="B*L"')
    else:
        found = read(given)
        for name in sorted(s.name for s in found.free_symbols):
            if name not in account.trial_sizes:
                known = ", ".join(account.trial_sizes)
                raise UnknownDimError(f"tokens={given}: there is no dim {name!r}; the account's dims are {known}")
    return reduced(evaluate(found, account.sizes) if account.sizes is not None else found)
