"""`headworks demo --check`: walk through the product's loops on a real fleet, print each step with its time.

Every step asserts what an operator relies on; the first that does not hold ends the check with exit status 1.
"""
