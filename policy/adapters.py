"""Models that are LoRA adapters of another: which pools serve them, and by which name engines are asked for them.

An engine with adapters answers for its base model by the one name and for each adapter by the adapter's own.
"""

from __future__ import annotations

from msgspec import UNSET

from wire.snapshot import Engine, Model, Pool


def serves(pool: Pool, name: str, model: Model) -> bool:
    """Whether the pool is of the model `name`, or holds the adapter that it is."""
    return pool.model == name or (model.adapter is not UNSET and model.adapter in pool.adapters)


def asked_as(model: Model, pool: Pool, engine: Engine) -> str:
    """The name by which an engine of the pool is asked for the model."""
    return model.adapter if model.adapter is not UNSET and model.adapter in pool.adapters else engine.served_model
