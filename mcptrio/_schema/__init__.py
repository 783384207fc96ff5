"""Types to JSON Schema, JSON to types: `build` for functions, `elicit` for forms, `check` for hand-written schemas."""
