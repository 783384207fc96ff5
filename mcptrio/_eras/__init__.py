"""Protocol revisions: one module per date, and the only package that knows dates."""
