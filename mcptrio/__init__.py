"""A Trio-native, actor-style runtime for the Model Context Protocol."""
