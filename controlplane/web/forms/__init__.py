"""What people type, a module a noun."""
