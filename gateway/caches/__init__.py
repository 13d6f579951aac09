"""Answers that are given again without an engine: to the same request, and to a question that means the same."""
