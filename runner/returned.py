"""What a tool returns, on its way to the model: without secrets, and no more than a model can do with."""

import copy
import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_ai.messages import BinaryContent, FileUrl, TextContent, ToolReturn

from threadhold.runner.scrubbing import Scrubber

RETURNED_CHARS_MAX: Final = 256 * 1024
"""How much of a result a model is shown, as JSON."""
FILE_BYTES_MAX: Final = 8 * 1024 * 1024
"""How large a file in a result may be."""

_ANY: Final[TypeAdapter[Any]] = TypeAdapter(Any)


def cleaned(result: Any, scrubber: Scrubber) -> tuple[Any, Any]:
    """Return a result as the model may have it, and its value as JSON values; the same object if nothing is wrong.

    Raises:
        TypeError: if it is not JSON-like; no model could be shown it.
    """
    if not isinstance(result, ToolReturn):
        return _value(result, scrubber)
    value, plain = _value(result.return_value, scrubber)
    content = None if result.content is None else _value(result.content, scrubber)[0]
    metadata = None if result.metadata is None else _value(result.metadata, scrubber)[0]
    if value is result.return_value and content is result.content and metadata is result.metadata:
        return result, plain
    return ToolReturn(return_value=value, content=content, metadata=metadata), plain


def _value(value: Any, scrubber: Scrubber) -> tuple[Any, Any]:
    value = _Cleaner(scrubber).clean(value)
    plain = _plain(value)
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    if len(text) - _files(value) <= RETURNED_CHARS_MAX:
        return value, plain
    left = len(text) - RETURNED_CHARS_MAX
    cut = f"{text[:RETURNED_CHARS_MAX]}… (the result was cut here; {left} more characters were left out)"
    return cut, cut


def _plain(result: Any) -> Any:
    """Return a tool's result as JSON values.

    Raises:
        TypeError: if it is not JSON-like; the run fails with that, since no model could be shown it.
    """
    try:
        return _ANY.dump_python(result, mode="json")
    except ValueError as error:
        raise TypeError(f"the tool returned something that is not JSON: {type(result).__name__}") from error


def _files(value: Any) -> int:
    """Return how many characters of a value's JSON are files."""
    match value:
        case BinaryContent():
            return len(value.data) * 4 // 3
        case Mapping():
            return sum(map(_files, value.values()))
        case list() | tuple():
            return sum(map(_files, value))
        case _:
            return 0


class _Cleaner:
    """Replaces secrets in whatever a tool may return."""

    def __init__(self, scrubber: Scrubber) -> None:
        self._scrubber = scrubber

    def clean(self, value: Any) -> Any:
        """Return the value; the same object if it holds no secret."""
        match value:
            case str() | bool() | int() | float():
                clean = self._scrubber.value(value)
                return value if clean == value else clean
            case BinaryContent():
                return self._file(value)
            case FileUrl():
                return self._with(
                    value, url=value.url, vendor_metadata=value.vendor_metadata, _identifier=value._identifier
                )
            case TextContent():
                return self._with(value, content=value.content, metadata=value.metadata)
            case dict():
                made = {self.clean(key): self._under(key, item) for key, item in value.items()}
                same = made.keys() == value.keys() and all(made[key] is value[key] for key in value)
                return value if same else made
            case list() | tuple():
                items = [self.clean(item) for item in value]
                return value if all(new is old for new, old in zip(items, value, strict=True)) else items
            case None:
                return None
            case _:
                plain = _plain(value)
                clean = self._scrubber.value(plain)
                return value if clean == plain else clean

    def _under(self, key: Any, item: Any) -> Any:
        return self.clean(self._scrubber.named(item) if self._scrubber.names(key) else item)

    def _with(self, value: Any, **fields: Any) -> Any:
        changed = {name: new for name, old in fields.items() if (new := self.clean(old)) is not old}
        if not changed:
            return value
        made = copy.copy(value)
        for name, new in changed.items():
            setattr(made, name, new)
        return made

    def _file(self, value: BinaryContent) -> Any:
        if len(value.data) > FILE_BYTES_MAX:
            return (
                f"(a file of {len(value.data)} bytes was left out: more than {FILE_BYTES_MAX} are not shown)"
            )
        value = self._with(value, vendor_metadata=value.vendor_metadata, _identifier=value._identifier)
        # Whatever it is, this reads each byte as a character, and what is replaced is ASCII.
        text = value.data.decode("latin-1")
        clean = self._scrubber.text(text)
        if clean == text:
            return value
        made = copy.copy(value)
        made.data = clean.encode("latin-1")
        return made
