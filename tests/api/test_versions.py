from __future__ import annotations

import io
import os
import tarfile
import time

import pytest

from qualityhub.engine.sandbox import reclaim
from qualityhub.registry.models import Environment, EnvironmentVersion, Task
from qualityhub.registry.packages import version_environment, version_root
from qualityhub.registry.services import task_roles_set

pytestmark = pytest.mark.django_db


@pytest.fixture
def url(environment):
    return f"/api/v1/environments/{environment.public_id}/versions"


@pytest.fixture
def upload(owner_api, url, tar_of, rows):
    def send(files=None, api=None, **fields):
        archive = tar_of(files or {"tasks.jsonl": rows()})
        return (api or owner_api).post(url, {"archive": archive, **fields}, format="multipart")

    return send


def test_upload_makes_a_version_with_tasks(upload, qh_home):
    response = upload()
    assert response.status_code == 201
    document = response.json()
    assert response["Location"] == f"/api/v1/versions/{document['id']}"
    assert (document["adapter"], document["tasks"], document["admission"]) == ("humaneval", 2, None)
    version = EnvironmentVersion.objects.get()
    assert list(version.tasks.order_by("position").values_list("task_id", "role")) == [
        ("T/0", "train"),
        ("T/1", "train"),
    ]
    assert (version_root(version) / "tasks.jsonl").is_file()
    assert not [path for path in (qh_home / "trees").iterdir() if path.name.startswith(".new")]


def test_stored_version_reads_back_as_the_same_environment(upload, rows):
    upload({"wrapped/tasks.jsonl": rows(3)})
    version = EnvironmentVersion.objects.get()
    environment = version_environment(version)
    assert environment.digest == version.digest
    assert environment.name == "sums"
    assert environment.root == version_root(version)
    assert [task.id for task in environment.tasks] == ["T/0", "T/1", "T/2"]
    assert (environment.root / "tasks.jsonl").is_file()


def test_lost_tree_is_unpacked_again(upload, qh_home):
    import shutil

    upload()
    version = EnvironmentVersion.objects.get()
    shutil.rmtree(qh_home / "trees")
    assert (version_root(version) / "tasks.jsonl").is_file()


def test_unpacked_packages_count_in_the_store_and_come_back_once_pruned(upload, qh_home):
    upload()
    version = EnvironmentVersion.objects.get()
    version_root(version)
    shown = next(kind for kind in reclaim.summarize(qh_home) if kind.kind == "trees")
    assert shown.count == 1
    assert shown.bytes > 0
    assert not reclaim.prune(qh_home, max_bytes=0).removed
    long_ago = time.time() - 3600
    record = next((qh_home / "trees").glob("*.json"))
    os.utime(record, (long_ago, long_ago))
    assert [item.kind for item in reclaim.prune(qh_home, max_bytes=0).removed] == ["trees"]
    assert not list((qh_home / "trees").iterdir())
    assert (version_root(version) / "tasks.jsonl").is_file()


def test_same_content_again_is_the_same_version(*, upload, zip_of, rows, owner_api, url):
    first = upload()
    again = owner_api.post(
        url, {"archive": zip_of({"tasks.jsonl": rows(), "README.md": b"words"})}, format="multipart"
    )
    assert again.status_code == 200
    assert again.json()["id"] == first.json()["id"]
    assert EnvironmentVersion.objects.count() == 1


def test_reference_makes_a_version_without_files(owner_api, url):
    response = owner_api.post(url, {"source": "gymnasium:CartPole-v1"})
    assert response.status_code == 201
    document = response.json()
    assert (document["source_kind"], document["archive"]) == ("reference", None)
    version = EnvironmentVersion.objects.get()
    assert version_root(version) is None
    assert version_environment(version).digest == version.digest


def test_server_paths_are_no_reference(owner_api, url, is_problem):
    for source in ("/etc/passwd", "file:///etc/passwd", "../x", "humaneval:x"):
        response = owner_api.post(url, {"source": source})
        is_problem(response, 422, "input.unsupported_source")
    assert not EnvironmentVersion.objects.exists()


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"notes.txt": b"nothing here"}, "package.unknown_format"),
        ({"tasks.jsonl": b'{"task_id": \n'}, None),
        ({"../escape.jsonl": b"{}"}, None),
    ],
)
def test_unreadable_package_stores_nothing(upload, qh_home, files, code):
    response = upload(files)
    assert response.status_code == 422
    document = response.json()
    assert document["code"] == code or (code is None and "." in document["code"])
    assert document["detail"]
    assert not EnvironmentVersion.objects.exists()
    assert not Task.objects.exists()
    assert list((qh_home / "trees").iterdir()) == []
    assert not (qh_home / "blobs").exists()
    assert not (qh_home.parent / "escape.jsonl").exists()


def test_bytes_that_are_no_archive_are_refused(owner_api, url, is_problem):
    from django.core.files.uploadedfile import SimpleUploadedFile

    for content in (b"", b"not an archive", b"PK\x03\x04broken"):
        response = owner_api.post(
            url, {"archive": SimpleUploadedFile("x.zip", content)}, format="multipart"
        )
        assert response.status_code == 422, response.content
        assert response.json()["code"].startswith(("archive.", "package.", "input."))


def test_symlink_out_of_the_archive_is_refused(owner_api, url):
    from django.core.files.uploadedfile import SimpleUploadedFile

    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        link = tarfile.TarInfo("tasks.jsonl")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    response = owner_api.post(
        url, {"archive": SimpleUploadedFile("x.tar.gz", data.getvalue())}, format="multipart"
    )
    assert response.status_code == 422
    assert not EnvironmentVersion.objects.exists()


def test_too_large_archive_is_refused_before_it_is_read(upload, settings, is_problem):
    settings.QH_MAX_UPLOAD_BYTES = 10
    is_problem(upload(), 413, "input.too_large")
    settings.QH_MAX_UPLOAD_BYTES = -(2**20)
    is_problem(upload(), 413, "input.too_large")


def test_entry_may_not_leave_the_archive(upload, is_problem):
    is_problem(upload(entry="../../etc/passwd"), 422, "input.bad_entry")
    is_problem(upload(entry="/etc/passwd"), 422, "input.bad_entry")


def test_entry_names_a_class_in_the_archive(upload):
    code = (
        b"class Walk:\n"
        b"    def reset(self, seed=None, options=None):\n        return 0, {}\n"
        b"    def step(self, action):\n        return 0, 0.0, True, False, {}\n"
    )
    response = upload({"pkg/walk.py": code}, entry="pkg/walk.py:Walk")
    assert response.status_code == 201, response.content
    assert response.json()["family"] == "episode"


def test_unknown_member_is_refused_with_the_nearest_name(upload, owner_api, url, is_problem):
    document = is_problem(upload(adaptor="humaneval"), 422, "input.invalid")
    assert document["errors"] == [
        {
            "pointer": "/adaptor",
            "detail": "There is no member 'adaptor'. Did you mean 'adapter'?",
            "code": "unknown",
        }
    ]
    document = is_problem(owner_api.post(url, {}), 422, "input.invalid")
    assert document["errors"][0]["pointer"] == "/source"


def test_repeated_key_repeats_the_answer(owner_api, url, tar_of, rows, is_problem):
    def send(content):
        return owner_api.post(
            url,
            {"archive": tar_of({"tasks.jsonl": content})},
            format="multipart",
            HTTP_IDEMPOTENCY_KEY="upload-1",
        )

    first = send(rows())
    again = send(rows())
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert again["Idempotency-Replayed"] == "true"
    assert again["Location"] == first["Location"]
    is_problem(send(rows(3)), 422, "idempotency.mismatch")
    assert EnvironmentVersion.objects.count() == 1


def test_versions_are_listed_newest_first(upload, owner_api, url, rows):
    upload()
    upload({"tasks.jsonl": rows(3)})
    results = owner_api.get(url).json()["results"]
    assert [result["tasks"] for result in results] == [3, 2]


def test_list_costs_the_same_however_long(
    make_version, owner_api, url, django_assert_max_num_queries
):
    for _ in range(5):
        make_version()
    with django_assert_max_num_queries(5):
        assert len(owner_api.get(url).json()["results"]) == 5


def test_task_role_follows_the_task_into_later_versions(upload, environment, rows):
    upload()
    task_roles_set(environment, {"T/1": "gate"}, actor="system")
    assert Task.objects.get(task_id="T/1").role == "gate"
    upload({"tasks.jsonl": rows(shift=7)})
    assert set(Task.objects.filter(task_id="T/1").values_list("role", flat=True)) == {"gate"}


def test_archive_comes_back_as_it_was(*, upload, owner_api, outsider_api, tar_of, rows, is_problem):
    sent = tar_of({"tasks.jsonl": rows()}).read()
    document = upload().json()
    response = owner_api.get(document["archive"])
    assert response.status_code == 200
    received = b"".join(response.streaming_content)
    assert len(received) == int(response["Content-Length"])
    with tarfile.open(fileobj=io.BytesIO(received)) as archive:
        assert archive.getnames() == ["tasks.jsonl"]
    assert len(received) == len(sent)
    unchanged = owner_api.get(document["archive"], HTTP_IF_NONE_MATCH=response["ETag"])
    assert unchanged.status_code == 304
    is_problem(outsider_api.get(document["archive"]), 404, "version.not_found")


def test_damaged_archive_is_our_failure(upload, owner_api, qh_home, is_problem):
    document = upload().json()
    sha256 = EnvironmentVersion.objects.get().archive_sha256
    (qh_home / "blobs" / sha256[:2] / sha256[2:4] / f"{sha256}.zst").write_bytes(b"other bytes")
    is_problem(owner_api.get(document["archive"]), 500, "blob.lost")


def test_reference_has_no_archive(owner_api, version, is_problem):
    is_problem(
        owner_api.get(f"/api/v1/versions/{version.public_id}/archive"), 404, "version.no_archive"
    )


def test_version_is_found_by_id_and_digest(owner_api, version):
    for ref in (version.public_id, version.digest):
        assert owner_api.get(f"/api/v1/versions/{ref}").json()["id"] == version.public_id


def test_tasks_are_paged_in_order(owner_api, make_version):
    version = make_version(tasks=[f"t{n:03}" for n in range(7)])
    url = f"/api/v1/versions/{version.public_id}/tasks?limit=3"
    seen = []
    while url:
        page = owner_api.get(url).json()
        seen += [task["id"] for task in page["results"]]
        url = page["next"]
    assert seen == [f"t{n:03}" for n in range(7)]


def test_outsider_sees_none_of_it(outsider_api, url, version, upload, is_problem):
    is_problem(outsider_api.get(url), 404, "environment.not_found")
    is_problem(upload(api=outsider_api), 404, "environment.not_found")
    for path in (version.public_id, version.digest, f"{version.public_id}/tasks"):
        is_problem(outsider_api.get(f"/api/v1/versions/{path}"), 404, "version.not_found")


def test_viewer_may_read_but_not_upload(teammate_api, url, upload, is_problem):
    assert teammate_api.get(url).status_code == 200
    is_problem(upload(api=teammate_api), 403, "access.role")


def test_read_token_may_not_upload(read_api, url, upload, is_problem):
    assert read_api.get(url).status_code == 200
    is_problem(upload(api=read_api), 403, "access.scope")


@pytest.mark.parametrize("ref", ["ver_x", "env_" + "a" * 26, "1", "qh1:zz", "%00", "'; --"])
def test_bad_id_is_not_found(owner_api, ref, is_problem):
    is_problem(owner_api.get(f"/api/v1/versions/{ref}"), 404, "version.not_found")


def test_other_methods_are_refused(owner_api, url, version, is_problem):
    is_problem(owner_api.delete(url), 405, "http.method_not_allowed")
    is_problem(
        owner_api.post(f"/api/v1/versions/{version.public_id}", {}), 405, "http.method_not_allowed"
    )


def test_other_body_types_are_refused(owner_api, url, is_problem):
    response = owner_api.post(url, "a=b", content_type="application/x-www-form-urlencoded")
    is_problem(response, 415, "http.unsupported_media_type")
    response = owner_api.post(url, '{"source": ', content_type="application/json")
    is_problem(response, 400, "input.malformed")
    response = owner_api.post(url, "[1]", content_type="application/json")
    is_problem(response, 422, "input.invalid")


def test_archive_is_not_sent_to_who_has_it(upload, owner_api):
    url = upload().json()["archive"]
    response = owner_api.get(url)
    mark = response["ETag"]
    assert b"".join(response.streaming_content)
    for given in (mark, f"W/{mark}", f'"other", {mark}', "*"):
        assert owner_api.get(url, HTTP_IF_NONE_MATCH=given).status_code == 304
    for given in ('"other"', mark.strip('"')):
        again = owner_api.get(url, HTTP_IF_NONE_MATCH=given)
        assert again.status_code == 200
        assert b"".join(again.streaming_content)


def test_form_that_says_two_things_is_refused(owner_api, url, tar_of, rows, is_problem):
    archives = [tar_of({"tasks.jsonl": rows(count)}) for count in (1, 2)]
    response = owner_api.post(url, {"archive": archives}, format="multipart")
    is_problem(response, 422, "input.repeated_part")
    assert not EnvironmentVersion.objects.exists()


HANDED_OUT = ("admitted", "partial")


def downloaded(api, url):
    response = api.get(url)
    b"".join(response.streaming_content)  # To its end, which closes the file.
    return response


@pytest.mark.parametrize(
    "state", [None, "admitted", "partial", "pending", "quarantined", "rejected", "error"]
)
def test_a_token_for_training_downloads_what_passed_alone(
    *, state, upload, make_api, owner, team, owner_api, is_problem
):
    document = upload().json()
    EnvironmentVersion.objects.update(admission=state)
    training = make_api(owner, team, ["admission:read"])
    etag = downloaded(owner_api, document["archive"])["ETag"]
    for ref in (document["id"], document["digest"]):
        url = f"/api/v1/versions/{ref}/archive"
        if state in HANDED_OUT:
            assert downloaded(training, url).status_code == 200
        else:
            is_problem(training.get(url), 404, "version.not_found")
            is_problem(training.get(url, HTTP_IF_NONE_MATCH=etag), 404, "version.not_found")
        assert downloaded(owner_api, url).status_code == 200


def test_a_digest_finds_the_version_that_passed(
    *, upload, owner_api, make_api, owner, team, tar_of, rows
):
    archive = upload().json()["archive"]
    rejected = EnvironmentVersion.objects.get()
    twin = Environment.objects.create(
        team=team, domain=rejected.environment.domain, slug="twin", name="Twin"
    )
    owner_api.post(
        f"/api/v1/environments/{twin.public_id}/versions",
        {"archive": tar_of({"tasks.jsonl": rows()})},
        format="multipart",
    )
    EnvironmentVersion.objects.filter(pk=rejected.pk).update(admission="rejected")
    EnvironmentVersion.objects.exclude(pk=rejected.pk).update(admission="admitted")
    training = make_api(owner, team, ["admission:read"])
    response = downloaded(training, archive)
    assert response.status_code == 200
    assert "twin-" in response["Content-Disposition"]
