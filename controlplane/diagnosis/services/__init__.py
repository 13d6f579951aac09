"""The only writers of rounds, findings, proposals and policies."""
