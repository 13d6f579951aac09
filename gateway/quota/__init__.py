"""What tenants may take: alone in this process, or counted with all gateways on one Redis."""
