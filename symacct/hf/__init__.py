"""A Hugging Face config as a model over named dims: `from_config`.

`reading` makes a config of a path, a dict or an object, `sizes` finds its dims (a `layout`), `tasks` the class of its
model and the inputs of a step, `found` puts them together.
"""

from symacct.hf.found import FromConfig, from_config

__all__ = ["FromConfig", "from_config"]
