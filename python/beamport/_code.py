"""The code of a worker as it was when the worker started: modules from the copy that the mover made of its files.

Modules have the paths of the user's files, so that tracebacks name these, and files beside them are found; the lines
that tracebacks show are those of the copy.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import sys
from pathlib import Path
from typing import Any


class Copied(importlib.abc.MetaPathFinder):
    """Finds modules in a copy: `{"folder": where it is, "root": where the files were, "hash": of all}`."""

    def __init__(self, copied: dict[str, str]) -> None:
        """Read the copy; `ImportError` where it is not the one that was made."""
        folder = Path(copied["folder"])
        self._root = Path(copied["root"])
        paths = sorted((path.relative_to(folder).as_posix(), path) for path in folder.rglob("*.py"))
        self._sources = {name: path.read_bytes() for name, path in paths}
        lines = [f"{hashlib.sha256(source).hexdigest()}  {name}\n" for name, source in self._sources.items()]
        if hashlib.sha256("".join(lines).encode()).hexdigest() != copied["hash"]:
            raise ImportError(f"the copy of the code in {folder} was changed: start `beamport up` again")

    def install(self) -> None:
        """Let imports find modules here before they look for files."""
        finders = sys.meta_path
        finders.insert(finders.index(importlib.machinery.PathFinder), self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Find a module by its whole name."""
        file = name.replace(".", "/")
        return self.spec(name, f"{file}/__init__.py") or self.spec(name, f"{file}.py")

    def spec(self, name: str, file: str) -> importlib.machinery.ModuleSpec | None:
        """Find a module by its file below the root."""
        source = self._sources.get(file)
        if source is None:
            return None
        path = self._root / file
        loader = _Loader(name, str(path), source)
        return importlib.util.spec_from_file_location(name, path, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module from bytes; compiled code that Python keeps beside the file is not used."""

    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self._source = source
        text = importlib.util.decode_source(source)
        # Without a time, so that tracebacks do not look into the file, which may be another by now.
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)

    def get_data(self, path: str) -> bytes:
        return self._source if path == self.path else super().get_data(path)

    def path_stats(self, path: str) -> dict[str, Any]:
        raise OSError
