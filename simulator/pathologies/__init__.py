"""What goes wrong in fleets of LLM engines, to be begun and ended at will; docs/diagnosis-lab.md has the table."""
