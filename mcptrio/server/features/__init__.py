"""The features of a server, one file each: declaration, listing, calls and change notifications."""
