"""Image archives as tools write them, made of entries, for tests."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
from dataclasses import dataclass, field

import zstandard

ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
OTHER = "arm64" if ARCH == "amd64" else "amd64"
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
TAR = "application/vnd.oci.image.layer.v1.tar"


def sha(data):
    return hashlib.sha256(data).hexdigest()


def folder(name, mode=0o755, uid=0, gid=0):
    return _entry(name, tarfile.DIRTYPE, mode, uid, gid), b""


def file(name, content=b"x", mode=0o644, uid=0, gid=0):
    content = content.encode() if isinstance(content, str) else content
    entry = _entry(name, tarfile.REGTYPE, mode, uid, gid)
    entry.size = len(content)
    return entry, content


def link(name, target, kind=tarfile.SYMTYPE):
    entry = _entry(name, kind, 0o777, 0, 0)
    entry.linkname = target
    return entry, b""


def hard(name, target):
    return link(name, target, tarfile.LNKTYPE)


def special(name, kind):
    return _entry(name, kind, 0o644, 0, 0), b""


def gone(path):
    head, _, tail = path.rpartition("/")
    return file(f"{head}/.wh.{tail}" if head else f".wh.{tail}", b"")


def opaque(path):
    return file(f"{path}/.wh..wh..opq", b"")


def _entry(name, kind, mode, uid, gid):
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.uid, entry.gid, entry.mtime = kind, mode, uid, gid, 1_700_000_000
    return entry


def tar(*entries, form=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for entry, content in entries:
            archive.addfile(entry, io.BytesIO(content) if entry.isreg() else None)
    return out.getvalue()


def tar_of(files):
    return tar(*[file(name, content) for name, content in files.items()])


@dataclass
class Image:
    """An image: layers as tars, and its configuration."""

    layers: list[bytes]
    config: dict = field(default_factory=dict)
    architecture: str = ARCH
    os: str = "linux"
    packing: str = ""

    @property
    def document(self):
        return json.dumps(
            {
                "architecture": self.architecture,
                "os": self.os,
                "config": self.config,
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha(x)}" for x in self.layers]},
            }
        ).encode()

    @property
    def id(self):
        return sha(self.document)

    def packed(self, layer):
        if self.packing == "gzip":
            return gzip.compress(layer, mtime=0)
        if self.packing == "zstd":
            return zstandard.ZstdCompressor().compress(layer)
        return layer


def descriptor(data, kind, **more):
    return {"mediaType": kind, "digest": f"sha256:{sha(data)}", "size": len(data), **more}


def oci_blobs(image):
    """Return the blobs of an image and the descriptor of its manifest."""
    blobs = {}

    def keep(data, kind, **more):
        blobs[f"blobs/sha256/{sha(data)}"] = data
        return descriptor(data, kind, **more)

    ending = f"+{image.packing}" if image.packing else ""
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": keep(image.document, "application/vnd.oci.image.config.v1+json"),
        "layers": [keep(image.packed(layer), TAR + ending) for layer in image.layers],
    }
    return blobs, keep(json.dumps(manifest).encode(), MANIFEST)


def oci(*images, names=(), nested=False):
    """Return the files of an OCI layout; several images are platforms of one or have names."""
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}
    rows = []
    for number, image in enumerate(images):
        blobs, row = oci_blobs(image)
        files.update(blobs)
        if len(images) > 1 and not names:
            row["platform"] = {"os": image.os, "architecture": image.architecture}
        if names:
            row["annotations"] = {"org.opencontainers.image.ref.name": names[number]}
        rows.append(row)
    if nested:
        inner = json.dumps({"mediaType": INDEX, "manifests": rows}).encode()
        files[f"blobs/sha256/{sha(inner)}"] = inner
        rows = [descriptor(inner, INDEX)]
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": rows}).encode()
    return files


def saved(image, tags=("lab/one:1",)):
    """Return the files that docker save wrote before it wrote OCI layouts."""
    files = {f"{image.id}.json": image.document}
    names = []
    for layer in image.layers:
        names.append(f"{sha(b'id' + layer)}/layer.tar")
        files[names[-1]] = layer
    row = {"Config": f"{image.id}.json", "RepoTags": list(tags), "Layers": names}
    return {**files, "manifest.json": json.dumps([row]).encode()}


def hybrid(image, tags=("lab/one:1",)):
    """Return the files that docker save writes today: both layouts over the same blobs."""
    blobs, row = oci_blobs(image)
    row["annotations"] = {"io.containerd.image.name": f"docker.io/{tags[0]}"}
    manifest = {
        "Config": f"blobs/sha256/{image.id}",
        "RepoTags": list(tags),
        "Layers": [f"blobs/sha256/{sha(image.packed(layer))}" for layer in image.layers],
    }
    return {
        **blobs,
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [row]}).encode(),
        "manifest.json": json.dumps([manifest]).encode(),
    }
