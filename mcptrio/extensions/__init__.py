"""Protocol extensions, each in its own package, imported only when it is used."""
