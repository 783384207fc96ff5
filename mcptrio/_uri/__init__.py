"""URI templates (RFC 6570): `syntax` parses and expands them, `match` matches URIs, `template` is the public class."""
