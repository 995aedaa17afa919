"""`mai reproduce`: the tables of the paper as one plan of runs."""
