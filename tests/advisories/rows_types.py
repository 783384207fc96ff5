"""Mutants for the types of arguments and results (C10 to C13, C27, C32): what is described, read and written."""

from __future__ import annotations

from .mutant import Mutant

TYPES = "tests/schema/test_types.py"
MODELS, RECORDS, SCALARS, NOTES = "_schema/models.py", "_schema/records.py", "_schema/scalars.py", "_schema/notes.py"

MUTANTS = [
    Mutant(
        "C10", "a model reads JSON, not Python values", MODELS,
        "            return validate(encode(value))\n", "            return adapter.validate_python(value)\n",
        TYPES, "test_a_strict_model_takes_what_json_has",
    ),
    Mutant(
        "C10", "a text that is no Unicode is a fault", MODELS,
        "        except unwritable as exc:\n", "        except KeyError as exc:\n",
        TYPES, "test_a_text_that_is_no_unicode_is_a_fault_of_the_model",
    ),
    Mutant(
        "C11", "the schema of a result is that of the written form", MODELS,
        '        schema = adapter.json_schema(mode="serialization" if output else "validation")\n',
        '        schema = adapter.json_schema(mode="validation")\n',
        TYPES, "test_a_model_is_checked_as_it_is_written",
    ),
    Mutant(
        "C11", "a model is written with its aliases", "_schema/dump.py",
        'mode="json", by_alias=True', 'mode="json"',
        TYPES, "test_a_model_is_checked_as_it_is_written",
    ),
    Mutant(
        "C12", "flags can be combined", SCALARS,
        "    if issubclass(type_, enum.Flag):\n", "    if False:\n",
        TYPES, "test_flags_can_be_combined",
    ),
    Mutant(
        "C12", "a sum holds only bits of the flag", SCALARS,
        " and not number & ~every:\n", ":\n",
        TYPES, "test_flags_can_be_combined",
    ),
    Mutant(
        "C13", "a TypedDict of typing_extensions is one", RECORDS,
        '    return isinstance(cls, type) and issubclass(cls, dict) and hasattr(cls, "__required_keys__")\n',
        "    return typing.is_typeddict(cls)\n",
        TYPES, "test_a_typed_dict_of_typing_extensions_is_one",
    ),
    Mutant(
        "C13", "NotRequired in a string annotation is seen", RECORDS,
        '        if _called(origin, "NotRequired"):\n', "        if False:\n",
        TYPES, "test_a_typed_dict_of_typing_extensions_is_one",
    ),
    Mutant(
        "C27", "a pattern means what the published schema means", NOTES,
        '    return lambda value: None if fits(value) else f"must match {pattern}"\n',
        '    return lambda value: None if __import__("re").search(pattern, value) else f"must match {pattern}"\n',
        TYPES, "test_a_pattern_means_what_the_published_schema_means",
    ),
    Mutant(
        "C27", "a pattern that only Python knows is refused", NOTES,
        "    except DeclarationError:\n        raise DeclarationError(\n",
        "    except DeclarationError:\n        return lambda value: None\n        raise DeclarationError(\n",
        TYPES, "test_a_pattern_that_only_python_knows_is_refused",
    ),
    Mutant(
        "C32", "items of any list may be content blocks", "_schema/build.py",
        "    if (origin or annotation) in _LISTS and all(arg in (Any, object, ...) for arg in args):\n",
        "    if False:\n",
        "tests/server/test_tools.py", "test_media_in_any_list_are_content_blocks",
    ),
    Mutant(
        "C32", "media make a list one of content blocks", "server/features/tools.py",
        "if all(blocks) or any(block and not isinstance(v, str) for block, v in zip(blocks, value, strict=True)):",
        "if all(blocks):",
        "tests/server/test_tools.py", "test_media_in_any_list_are_content_blocks",
    ),
]  # fmt: skip
