"""Engines' metrics pages under one set of names, read by node agents and gateways alike."""
