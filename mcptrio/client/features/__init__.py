"""What a client can do and offer, one file per feature, named like the server's."""
