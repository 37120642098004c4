"""Parts from outside the package, named in a project file as ``"my_package.module:Name"``.

| key | what is called | what comes back |
|---|---|---|
| ``model.negatives.kind`` | ``Name(counts=, count=, **options)`` | `recsys_cg.model.negatives.Sampler` |
| ``model.loss`` | ``name(positive, logits, excluded, **loss_options)`` | float32 [queries] |
| ``items.features.kind`` | ``Name.fit``, ``Name.from_json`` | `recsys_cg.data.content.FeatureEncoder` |
| ``index.kind`` | ``Name.build``, ``Name.open`` | `recsys_cg.index.base.Backend` |
| ``evaluation.metrics`` | ``name(ranks, k)`` | float64 [queries] |

A part is a module that is installed beside this package, one function or class, and one test that inherits the
contract in ``tests/contracts``. Nothing is registered: the name in the project file is all, and it goes into the keys
and manifests of the stages. Whoever loads an artifact that was made with a part needs the part installed, too.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from recsys_cg.errors import ConfigError

__all__ = ["call_extension", "is_extension", "load_extension"]

_FORM = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def is_extension(name: str) -> bool:
    """Tell whether ``name`` has the form ``package.module:Name``, unlike the names of what this package brings.

    Example:
        >>> is_extension("my_package.losses:focal"), is_extension("softmax")
        (True, False)
    """
    return _FORM.fullmatch(name) is not None


def load_extension(name: str, *, key: str, methods: Sequence[str] = ()) -> Any:
    """Import the part that ``name`` says, and check that it is what ``key`` calls.

    Args:
        name: ``package.module:Name``.
        key: the key of the project file that named it, for the error.
        methods: what it must have; without any it must be callable itself.

    Raises:
        ConfigError: the module cannot be imported, has no such name, or the name is something else.
    """
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a user's module does wrong
        raise ConfigError(
            f"{key} = {name!r}: {module_name} cannot be imported here: {type(error).__name__}: {error}"
        ) from error
    part = getattr(module, attribute, None)
    if part is None:
        raise ConfigError(f"{key} = {name!r}: {module_name} has no {attribute}")
    missing = [method for method in methods if not callable(getattr(part, method, None))]
    if missing or not callable(part):
        wanted = " and ".join(methods) or "a call"
        raise ConfigError(f"{key} = {name!r}: {attribute} does not offer {wanted}")
    return part


def call_extension(
    part: Callable[..., Any], name: str, options: Mapping[str, Any], *given: Any, key: str, **named: Any
) -> Any:
    """Return ``part(*given, **named, **options)``, where a refusal is the configuration's fault.

    Raises:
        ConfigError: it does not take these options, or refuses their values.
    """
    try:
        return part(*given, **named, **options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{key} = {name!r} refuses its options: {error}") from error
