"""Pure decisions that several processes share: routing, quotas, breakers, KV capacity. No I/O; time is passed in."""
