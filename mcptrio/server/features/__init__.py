"""What a server can do, one feature per file: what is declared, listed, called, and told when it changes."""
