"""Batches at the gateway: tenants' calls, which the control plane answers, and lines, which this gateway runs."""
