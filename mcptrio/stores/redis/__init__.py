"""A store in Redis or Valkey, which several processes share."""

from __future__ import annotations

from mcptrio.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
