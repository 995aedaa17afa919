"""Which tokens of some reasoning a model attends to: rows of attention, and the selection for sparse transfer."""
