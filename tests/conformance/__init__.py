"""The official conformance suite, and what is needed to run it."""
