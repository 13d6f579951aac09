"""How long a prompt is: by the model's own tokenizer and chat template, else by an engine's, else by an estimate."""

from gateway.measure.engine_tokenizer import EngineTokenizer
from gateway.measure.measure import Measure, PromptSize

__all__ = ["EngineTokenizer", "Measure", "PromptSize"]
