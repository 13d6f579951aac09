"""What pages show of each noun, made from rows and readings."""
