"""The protocol itself, one machine for both roles: messages in, effects out, never a wait."""
