"""A store in Redis or Valkey, which several processes share."""
