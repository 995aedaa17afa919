"""Which reasoning tokens the large model looks at: sparse transfer (table 9) and its analysis (table 16)."""
