"""What runs a model: one file per engine, one protocol (`base.Engine`), loaded by name with `base.load_engine`."""
