"""The reference data plane: identify, admit by quota and KV capacity, stream from engines. No Django."""
