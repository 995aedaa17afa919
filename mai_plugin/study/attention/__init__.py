"""`mai attention`: which tokens of reasoning the large model attends to (table 16)."""
