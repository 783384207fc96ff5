"""Protocol extensions, each in its own package, imported only when it is used; and the base class for your own."""

from mcptrio._actors.extension import ClientPeer, Extension, Heard, Notify, Proceed
from mcptrio._actors.router import Route

__all__ = ["ClientPeer", "Extension", "Heard", "Notify", "Proceed", "Route"]
