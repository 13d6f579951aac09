"""One metrics page for Triton with vLLM inside: its own process, as prometheus_client weighs as much as an agent."""
