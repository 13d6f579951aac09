"""PromQL over the embedded store: Prometheus 3's answers, or a refusal that names what is not supported."""
