"""Extensions of the protocol, each a package of its own that is imported only when it is used."""
