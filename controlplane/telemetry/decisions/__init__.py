"""What gateways tell of requests: why each was admitted or refused, and how long requests are, minute by minute."""
