"""What stands between quota and engine."""
