"""From a path, a dict or a config object to a config of `transformers`, without its network and without its words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from symacct.errors import TargetError

# Where a config came from and how its checkpoint was stored. Nothing of it changes what the model computes in float32.
_ASIDE = ("architectures", "auto_map", "transformers_version", "_name_or_path", "torch_dtype", "dtype")


def transformers() -> Any:
    """The library, which is an optional one."""
    try:
        import transformers
    except ImportError:
        raise TargetError("a config needs the library transformers: pip install 'symacct[hf]'") from None
    return transformers


@contextmanager
def quiet() -> Iterator[None]:
    """Only errors of `transformers` are printed meanwhile; trial sizes make it warn of token ids and the like."""
    logging = transformers().logging
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def read(source: Any) -> tuple[dict[str, Any], Any, tuple[str, ...]]:
    """The fields that a config gives, the config itself, and notes on what was set aside.

    ``source``: a path of a JSON file or of a folder with a ``config.json``, a dict, or a config object. Of a config
    with a ``text_config`` it is that part.

    Raises `TargetError` for what cannot be read, for a type that `transformers` does not have, and for fields that it
    refuses.
    """
    library = transformers()
    if isinstance(source, library.PreTrainedConfig):
        given = {**source.to_diff_dict(), "model_type": source.model_type, "architectures": source.architectures}
        where = type(source).__name__
    elif isinstance(source, Mapping):
        given, where = dict(source), "the config"
    elif isinstance(source, (str, Path)):
        path = Path(source)
        where = str(path / "config.json" if path.is_dir() else path)
        given = _json(Path(where))
    else:
        raise TargetError(
            f"from_config(): expected the path of a config.json, a dict or a config object, got {type(source).__name__}"
        )
    if isinstance(given.get("text_config"), Mapping) and "hidden_size" not in given:
        given = {"architectures": None, **given["text_config"]}
    config = _config(given, where, library)
    plain = _plain_rope(getattr(config, "rope_parameters", None))
    if plain is None:
        return given, config, ()
    given = {name: value for name, value in given.items() if name != "rope_scaling"} | {"rope_parameters": plain}
    kind = config.rope_parameters.get("rope_type")
    note = f"rotary embeddings of type {kind!r}, with a factor for each of them, are traced as those of type 'default'"
    return given, _config(given, where, library), (note,)


def _plain_rope(rope: Any) -> dict[str, Any] | None:
    """The parameters of plain rotary embeddings, where the given ones list a factor per half of a head's size.

    Such lists fix the size of a head. They change the values of a small table, and neither its shape nor its use.
    """
    if not isinstance(rope, Mapping) or not any(isinstance(value, (list, tuple)) for value in rope.values()):
        return None
    kept = {name: rope[name] for name in ("rope_theta", "partial_rotary_factor") if name in rope}
    return {**kept, "rope_type": "default"}


def fields_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a config's class is made with."""
    return {name: value for name, value in given.items() if name not in _ASIDE and name != "model_type"}


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TargetError(f"there is no file {path}") from None
    except json.JSONDecodeError as error:
        raise TargetError(f"{path} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TargetError(f"{path} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise TargetError(f"{path} holds a {type(found).__name__}, not the fields of a config")
    return found


def _config(given: Mapping[str, Any], where: str, library: Any) -> Any:
    kind = given.get("model_type")
    if not isinstance(kind, str):
        raise TargetError(f"{where} has no model_type, which says what model it is for, as in 'llama'")
    known = library.CONFIG_MAPPING
    if kind not in known:
        from difflib import get_close_matches

        close = get_close_matches(kind, list(known.keys()), n=3)
        hint = f"did you mean {', '.join(close)}? " if close else ""
        raise TargetError(
            f"{where}: transformers {library.__version__} has no model_type {kind!r}; {hint}"
            "a model from elsewhere is traced with sa.build and a builder of your own"
        )
    try:
        with quiet():
            return known[kind](**fields_of(given))
    except Exception as error:
        raise TargetError(f"{where}: {kind} refuses its fields: {_last_line(error)}") from error


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
