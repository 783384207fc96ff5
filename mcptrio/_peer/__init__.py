"""The protocol machine, shared by both roles: messages in, effects out, never a wait."""
