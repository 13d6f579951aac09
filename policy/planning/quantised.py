"""How a model's weights lie on disk, by the `quantization_config` of its config.json."""

from __future__ import annotations

from policy.planning.config_json import BadConfig, ConfigFields
from policy.planning.shapes import Quantisation
from wire.problems import Problem

_FP8_METHODS = ("fp8", "fbgemm_fp8")
_INT4_METHODS = ("awq", "gptq", "auto-round")
_INT4_BITS = 4
_INT_BY_BITS: dict[int, Quantisation] = {_INT4_BITS: "int4", 8: "fp8"}


def stored_as(fields: ConfigFields) -> Quantisation | None:
    """How `quantization_config` says that the weights lie on disk; None where it is one that is not known."""
    quantised = fields.get("quantization_config")
    if quantised is None:
        return "bf16"
    if not isinstance(quantised, dict):
        raise BadConfig([Problem("/quantization_config", "type", "give an object, or leave it out")])
    method, bits = quantised.get("quant_method"), quantised.get("bits")
    if method in _FP8_METHODS:
        return "fp8"
    if method == "mxfp4":
        return "mxfp4"
    if method in _INT4_METHODS and bits in (None, _INT4_BITS):
        return "int4"
    if method == "compressed-tensors":
        return _INT_BY_BITS.get(_bits_of_groups(quantised.get("config_groups")))
    return None


def _bits_of_groups(groups: object) -> int:
    """Of the first group of layers; 0 where it does not say."""
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        bits = weights.get("num_bits") if isinstance(weights, dict) else None
        return bits if type(bits) is int else 0
    return 0
