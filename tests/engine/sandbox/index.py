"""A package index in a folder, so that layers can be made and refused without a network."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import tarfile
import zipfile


def wheel(folder, name, version, *, requires=(), source="VALUE = 1\n", extra=None, **page):
    """``extra`` are more files by path; ``page`` are attributes of the link (see ``_page``)."""
    content = wheel_bytes(name, version, requires=requires, source=source, extra=extra)
    target = folder / name / f"{name}-{version}-py3-none-any.whl"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    _page(target, page)


def wheel_bytes(name, version, *, requires=(), source="VALUE = 1\n", extra=None):
    stem = f"{name}-{version}"
    files = {
        f"{name}.py": source,
        **(extra or {}),
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {line}\n" for line in requires),
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = []
    for path, text in files.items():
        digest = (
            base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        )
        record.append(f"{path},sha256={digest},{len(text)}")
    files[f"{stem}.dist-info/RECORD"] = "\n".join([*record, f"{stem}.dist-info/RECORD,,"]) + "\n"
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return target.getvalue()


def sdist(folder, name, version, *, setup, build_requires=(), pkg_info="", **page):
    """A source distribution whose build backend is its own file: no other package is needed."""
    files = {
        "pyproject.toml": f"[build-system]\nrequires = {json.dumps(list(build_requires))}\n"
        'build-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": setup,
        "PKG-INFO": pkg_info or f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    }
    target = folder / name / f"{name}-{version}.tar.gz"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{path}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    _page(target, page)


def backend(name, version, *, before="", requires=()):
    """A build backend that runs some statements and then writes a wheel.

    The statements may set ``VALUE``, which the module of the wheel then has, and see ``folder``,
    where the wheel goes.
    """
    return f"""
import base64, io, os, sys
def build_wheel(folder, config_settings=None, metadata_directory=None):
    VALUE = None
{"".join(f"    {line}" + chr(10) for line in before.splitlines())}
    import zipfile
    stem = "{name}-{version}"
    with zipfile.ZipFile(os.path.join(folder, stem + "-py3-none-any.whl"), "w") as z:
        z.writestr("{name}.py", f"VALUE = {{VALUE!r}}\\n")
        z.writestr(stem + ".dist-info/METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n" + {"".join(f"Requires-Dist: {line}" + chr(10) for line in requires)!r})
        z.writestr(stem + ".dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        z.writestr(stem + ".dist-info/RECORD", "{name}.py,,\\n" + "".join(stem + ".dist-info/" + part + ",,\\n" for part in ("METADATA", "WHEEL", "RECORD")))
    return stem + "-py3-none-any.whl"
"""


def _page(target, attributes):
    """Add a link to the page of a package.

    ``sha256`` replaces the hash (an empty one is left out), ``href`` where the link leads; the rest
    are ``data-`` attributes.
    """
    folder = target.parent
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    shown = attributes.pop("sha256", digest)
    href = attributes.pop("href", target.name) + (f"#sha256={shown}" if shown else "")
    words = "".join(
        f' data-{key.replace("_", "-")}="{html.escape(value)}"' for key, value in attributes.items()
    )
    links = folder / "links"
    rows = json.loads(links.read_text()) if links.exists() else {}
    rows[target.name] = f'<a href="{href}"{words}>{target.name}</a>\n'
    links.write_text(json.dumps(rows))
    page = "".join(rows[name] for name in sorted(rows))
    (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>{page}</body></html>")


def refresh(target):
    """Write the page of a file again after its content changed."""
    _page(target, {})
