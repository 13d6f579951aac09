"""LoRA adapters that engines of this node shall hold, kept so."""
