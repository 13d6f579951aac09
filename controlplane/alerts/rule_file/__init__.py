"""Rule files of Prometheus: read, checked, written, and their unit tests run. Pure; services.rule_files stores them."""
