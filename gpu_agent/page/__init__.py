"""The agent's own pages: metrics for an existing Prometheus, readiness for load balancers and kubelet."""
