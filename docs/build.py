#!/usr/bin/env python3
"""Builds the documentation as a site that works when it is opened from disk, search included.

python docs/build.py site
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(Path(__file__).resolve().parent))

import llms  # noqa: E402  # in the same folder


def main(folder: str, *options: str) -> int:
    site = Path(folder).resolve()
    # In a folder of its own: zensical takes a folder .cache next to its configuration for its own, and cleans it.
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(ROOT / "mkdocs.yml", scratch)
        left_out = shutil.ignore_patterns("*.py", "*.txt", "snippets", "news", "__*")
        shutil.copytree(ROOT / "docs", Path(scratch, "docs"), ignore=left_out)
        command = [sys.executable, "-m", "zensical", "build", "--strict", *options]
        if code := subprocess.run(command, cwd=scratch, check=False).returncode:
            return code
        shutil.rmtree(site, ignore_errors=True)
        shutil.move(Path(scratch, "site"), site)
    llms.write(site)
    print(f"Open {folder}/index.html from disk: everything works there, search too, without a web server or a network.")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
