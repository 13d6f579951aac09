"""A program that reads nothing, says nothing, and does not end."""

from __future__ import annotations

import time

if __name__ == "__main__":
    time.sleep(600)
