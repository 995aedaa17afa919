"""`mai reproduce`: the paper's tables as one resumable plan of lmms-eval runs, and what they measured beside them."""
