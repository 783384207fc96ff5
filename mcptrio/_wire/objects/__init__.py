"""attrs classes <-> JSON values. `converter` is the entry point.

    names        field names on the wire (camelCase)
    readers      strict hooks for each kind of value: scalars, arrays, mappings, unions
    interpreted  reads a class field by field with these hooks and reports every error
    generated    reads and writes a class with functions that cattrs generates from the same hooks
    writers      writes a class field by field
    converter    chooses between interpreted and generated functions

cattrs generates one function per class and direction, which is fast to run and slow to make, and cattrs itself is slow
to import. So a class is interpreted until it was used `GENERATE_AFTER` times: a server that starts, answers a few calls
and ends never imports cattrs. A generated reader stops at the first error without its path; when it fails, the
interpreted reader runs on the same value to collect all errors with their paths.
"""
