"""``QualityHubClient``: the REST interface of a hub as methods."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlencode

from qualityhub.client.archive import packed
from qualityhub.client.model import Ingested, Job, Json, Manifest, job_from
from qualityhub.client.rollouts import Part, file_blocks, parts
from qualityhub.client.transport import KEY, Transport, document_of
from qualityhub.engine.errors import ConflictError, MachineryError

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

API = "/api/v1"
CHECK_AT_ONCE = 512
NDJSON = "application/x-ndjson"
FIRST_POLL_S = 0.5
LONGEST_POLL_S = 5.0


class QualityHubClient:
    """Talks to one hub.

    Every method raises :class:`~qualityhub.engine.errors.QualityHubError` with the hub's own code
    and hint where it refuses, and ``MachineryError`` where it cannot be reached. Safe requests and
    those with an idempotency key are sent again by themselves.

    Args:
        url: The hub's address, e.g. ``https://quality.example.org``.
        token: Access token.
        transport: Instead of the default one, e.g. with other timeouts.
    """

    def __init__(self, url: str, token: str = "", *, transport: Transport | None = None) -> None:
        self._transport = transport or Transport(url, token)
        self.url = self._transport.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    # People and domains

    def me(self) -> Json:
        """Return who the token belongs to, its scopes and teams."""
        return self._get("teams/me")

    def domains(self) -> Iterator[Json]:
        """Yield the domains that the caller sees."""
        return self._pages("domains")

    def domain(self, ref: str) -> Json:
        """Return a domain by id or slug."""
        return self._get(f"domains/{_segment(ref)}")

    def domain_create(self, name: str, *, slug: str = "", description: str = "") -> Json:
        """Create a domain."""
        return self._post("domains", _filled(name=name, slug=slug, description=description))

    # Environments

    def environments(self, *, domain: str = "", name: str = "") -> Iterator[Json]:
        """Yield environments, newest first; ``name`` is an exact slug or name."""
        return self._pages("environments", domain=domain, name=name)

    def environment_create(self, name: str, domain: str, *, description: str = "") -> Json:
        """Create an environment."""
        return self._post(
            "environments", _filled(name=name, domain=domain, description=description)
        )

    def environment_ensure(self, name: str, domain: str) -> Json:
        """Return the environment of that name in the domain; create it where there is none."""
        for found in self.environments(domain=domain, name=name):
            return found
        try:
            return self.environment_create(name, domain)
        except ConflictError:
            # Somebody else created it between the two requests.
            for found in self.environments(domain=domain, name=name):
                return found
            raise

    def version_upload(
        self, environment: str, path: Path, *, entry: str = "", adapter: str = ""
    ) -> Json:
        """Upload a file or folder as a version; the same content is the same version."""
        fields = _filled(entry=entry, adapter=adapter)
        key = _new_key()
        with packed(path) as archive:

            def body() -> Mapping[str, Any]:
                archive.seek(0)
                file: tuple[str, IO[bytes], str] = (
                    f"{path.name}.tar.gz",
                    archive,
                    "application/gzip",
                )
                return {"data": fields, "files": {"archive": file}}

            return self._document(
                self._transport.send(
                    "POST",
                    f"{API}/environments/{_segment(environment)}/versions",
                    body=body,
                    headers={KEY: key},
                )
            )

    def version_reference(self, environment: str, source: str) -> Json:
        """Register a source without files, such as ``gymnasium:CartPole-v1``."""
        return self._post(f"environments/{_segment(environment)}/versions", {"source": source})

    def version(self, ref: str) -> Json:
        """Return a version."""
        return self._get(f"versions/{_segment(ref)}")

    def version_archive(self, ref: str, target: IO[bytes]) -> None:
        """Write a version's files, as they were uploaded, to an open file."""
        address = f"{API}/versions/{_segment(ref)}/archive"
        target.write(self._transport.send("GET", address).content)

    def version_inspect(
        self, version: str, *, effort: str = "", trigger: str = "", fresh: bool = False
    ) -> Job:
        """Start an inspection and return its job.

        Args:
            version: The version's id.
            effort: ``quick``, ``standard`` or ``certify``; empty for what the domain's policy says.
            trigger: ``manual`` or ``ci``.
            fresh: Run every trial again; stored results do not count.
        """
        body = _filled(effort=effort, trigger=trigger, fresh=fresh)
        return job_from(self._post(f"versions/{_segment(version)}/inspect", body))

    # Work

    def job(self, ref: str) -> Job:
        """Return how far a job is."""
        return job_from(self._get(f"jobs/{_segment(ref)}"))

    def job_wait(
        self,
        ref: str,
        *,
        timeout_s: float | None = None,
        on_progress: Callable[[Job], None] = lambda _job: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Job:
        """Wait until a job has ended and return it.

        Args:
            ref: The job's id.
            timeout_s: Seconds to wait, or None for as long as it takes.
            on_progress: Called after every look.
            sleep: Instead of waiting, for tests.

        Raises:
            MachineryError: ``job.timeout``: it has not ended in time; it goes on at the hub.
        """
        began = time.monotonic()
        pause = FIRST_POLL_S
        while True:
            job = self.job(ref)
            on_progress(job)
            if job.ended:
                return job
            if timeout_s is not None and time.monotonic() - began + pause > timeout_s:
                raise MachineryError(
                    "job.timeout",
                    f"The job {ref} has not ended within {timeout_s:g} s; it is {job.status}.",
                    f"It goes on at the hub: qualityhub wait {ref}",
                )
            sleep(pause)
            pause = min(pause * 1.5, LONGEST_POLL_S)

    def inspections(self, *, version: str = "") -> Iterator[Json]:
        """Yield inspections, newest first."""
        return self._pages("inspections", version=version)

    def inspection(self, ref: str) -> Json:
        """Return an inspection without its report."""
        return self._get(f"inspections/{_segment(ref)}")

    def inspection_report(self, ref: str) -> Json:
        """Return the report (``qualityhub.inspection/1``) of an inspection that has ended."""
        return self._get(f"inspections/{_segment(ref)}/report")

    def findings(self, *, inspection: str = "", code: str = "") -> Iterator[Json]:
        """Yield findings: of one inspection, or of every version's newest one."""
        return self._pages("findings", inspection=inspection, code=code, limit="200")

    def trial(self, key: str) -> Json:
        """Return how a trial ended and what it used (``qualityhub.trial/1``)."""
        return self._get(f"trials/{_segment(key)}")

    def trial_evidence(self, key: str) -> Json:
        """Return what a trial wrote (``qualityhub.evidence/1``)."""
        return self._get(f"trials/{_segment(key)}/evidence")

    # Admission

    def admission_manifest(self, *, domain: str = "", etag: str = "") -> Manifest:
        """Return what training may use, or that it is what it was at ``etag``."""
        response = self._transport.send(
            "GET",
            f"{API}/admission/manifest{_query(domain=domain)}",
            headers={"If-None-Match": etag} if etag else {},
            allowed=frozenset({304}),
        )
        if response.status_code == 304:
            return Manifest(etag, None)
        return Manifest(response.headers.get("ETag", ""), self._document(response))

    def admission_check(self, digests: Sequence[str]) -> dict[str, Json]:
        """Return by digest whether training may use it, and why not."""
        answers: dict[str, Json] = {}
        for start in range(0, len(digests), CHECK_AT_ONCE):
            body = {"digests": list(digests[start : start + CHECK_AT_ONCE])}
            # A question, not a change: it may be asked again, and needs no key.
            answer = self._document(self._send_json("POST", "admission/check", body))
            answers.update({str(row["digest"]): row for row in answer["results"]})
        return answers

    # Results and gates

    def checkpoint_create(self, name: str, **fields: Any) -> Json:
        """Create a checkpoint; fields are those of the endpoint (lineage, variant, parent…)."""
        return self._post("checkpoints", {"name": name, **fields})

    def eval_run_create(self, checkpoint: str, name: str, **fields: Any) -> Json:
        """Create an evaluation run of a checkpoint."""
        return self._post("eval-runs", {"checkpoint": checkpoint, "name": name, **fields})

    def eval_run(self, ref: str) -> Json:
        """Return a run with its counters."""
        return self._get(f"eval-runs/{_segment(ref)}")

    def eval_run_seal(self, ref: str) -> Json:
        """Close a run for good; gates compare sealed runs."""
        return self._post(f"eval-runs/{_segment(ref)}/seal", None)

    def rollouts_push(
        self,
        run: str,
        files: Sequence[Path],
        *,
        create_domains: bool = False,
        on_part: Callable[[Part, Ingested], None] = lambda _part, _so_far: None,
    ) -> Ingested:
        """Upload result files (CSV or NDJSON, plain or gzip) in requests of whole rows.

        Rows are checked here first, so that a bad one is named with file and line. An upload that
        broke is simply repeated: what is stored already changes nothing.

        Args:
            run: The run's id.
            files: Result files.
            create_domains: Make domains that rows name and the team lacks.
            on_part: Called after every request with the sums so far.

        Raises:
            InvalidInputError: A file or row that cannot be used; earlier requests are stored.
        """
        total = Ingested()
        address = f"{API}/eval-runs/{_segment(run)}/rollouts"
        address += _query(create_domains="true" if create_domains else "")
        for part in parts(run, file_blocks(files)):
            answer = self._document(
                self._transport.send(
                    "POST",
                    address,
                    body=lambda part=part: {"content": part.body},  # type: ignore[misc]
                    headers={KEY: part.key, "Content-Type": NDJSON, "Content-Encoding": "gzip"},
                )
            )
            total = Ingested(
                received=total.received + int(answer["received"]),
                inserted=total.inserted + int(answer["inserted"]),
                duplicates=total.duplicates + int(answer["duplicates"]),
                conflicts=total.conflicts + int(answer["conflicts_total"]),
                examples=(*total.examples, *answer["conflicts"])[:20],
                requests=part.number,
            )
            on_part(part, total)
        return total

    def gate_create(
        self, candidate: Sequence[str], baseline: Sequence[str] = (), *, policy: str = ""
    ) -> Json:
        """Start a gate over runs or a checkpoint; without a baseline, against the stored one."""
        return self._post(
            "gates",
            _filled(candidate=list(candidate), baseline=list(baseline), policy=policy),
        )

    def gate(self, ref: str) -> Json:
        """Return a gate without its report."""
        return self._get(f"gates/{_segment(ref)}")

    def gate_report(self, ref: str) -> Json:
        """Return the report (``qualityhub.gate/1``) of a gate that was decided."""
        return self._get(f"gates/{_segment(ref)}/report")

    # Inside

    def _get(self, path: str, **params: str) -> Json:
        return self._document(self._transport.send("GET", f"{API}/{path}{_query(**params)}"))

    def _post(self, path: str, body: Mapping[str, Any] | None) -> Json:
        return self._document(self._send_json("POST", path, body, {KEY: _new_key()}))

    def _send_json(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        arguments = {} if body is None else {"json": dict(body)}
        return self._transport.send(
            method, f"{API}/{path}", body=lambda: arguments, headers=headers
        )

    def _pages(self, path: str, **params: str) -> Iterator[Json]:
        address: str | None = f"{API}/{path}{_query(**params)}"
        while address:
            page = self._document(self._transport.send("GET", address))
            yield from page["results"]
            address = page.get("next")
            if address and not address.startswith("/"):
                # The token goes to this hub and nowhere else.
                raise MachineryError("hub.bad_page", f"The hub names a next page at {address!r}.")

    def _document(self, response: httpx.Response) -> Json:
        document = document_of(response)
        if not document:
            raise MachineryError(
                "hub.not_a_hub",
                f"What answers at {self.url} is not a hub, or a newer one: it sent no JSON object.",
                "Check the address (QH_URL).",
            )
        return document


def _segment(ref: str) -> str:
    """Return an id as one path segment: it comes from a command line."""
    return quote(ref, safe=":")


def _query(**params: str) -> str:
    filled = {key: value for key, value in params.items() if value}
    return f"?{urlencode(filled)}" if filled else ""


def _filled(**fields: Any) -> Json:
    return {key: value for key, value in fields.items() if value}


def _new_key() -> str:
    return str(uuid.uuid4())
