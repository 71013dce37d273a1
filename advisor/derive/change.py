"""What is to be stored of models that were worked out: made outside of any transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from advisor.store.transaction import StoreTransaction

Change = Callable[[StoreTransaction], object]
"""Writes one change, inside of a transaction."""


def save(model: Mapping[str, Any]) -> Change:
    """Store a model, by what :meth:`StoreTransaction.save_model` takes."""
    return lambda writer: writer.save_model(**model)


def retire(id: int, reason: str = "what it followed from is gone") -> Change:
    """Take a model out of use."""
    return lambda writer: writer.set_model_state(id, "replaced", reason)
