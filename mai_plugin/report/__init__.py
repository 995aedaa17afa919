"""`mai report` and `mai compare`: stored runs as tables, pictures and a page."""
