"""A whole fleet on one machine: the real control plane, gateway and agents; everything behind them is simulated."""
