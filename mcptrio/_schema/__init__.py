"""Types to JSON Schema and JSON to types: `build` for functions, `elicit` for forms, `check` for hand-written schemas."""
