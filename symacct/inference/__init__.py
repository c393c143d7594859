"""Serving a model: prefill and decode with the cache of keys and values, memory, and the least time.

`cached` makes a module with its cache of a model of `transformers`, `cache` finds the cache in an account, `attention`
is about its intensity, `bounds` has the times, `fit` what fits in memory, `result` puts them together, `making` makes
it of a config or of accounts, `speculative` is about guessed tokens.
"""

from symacct.inference.attention import attention_intensity
from symacct.inference.making import inference, of_accounts
from symacct.inference.result import Inference
from symacct.inference.speculative import Speculation, speculate

__all__ = ["Inference", "Speculation", "attention_intensity", "inference", "of_accounts", "speculate"]
