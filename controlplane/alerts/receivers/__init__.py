"""How incidents are told, one module a kind of receiver behind one contract (contract.py)."""
