"""Which tokens of a reasoning a model attends to: rows of attention, and the selection for sparse transfer."""
