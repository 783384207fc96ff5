"""The request that a function gets which authenticates (`auth=`), and the response with which it refuses one."""

from mcptrio.transports.http_server.endpoint.message import HttpRequest, Plain

__all__ = ["HttpRequest", "Plain"]
