"""The features of a client, one file each, named like those of the server."""
