"""The answers to what an era asks: one module per protocol date, and the only place that knows dates."""
