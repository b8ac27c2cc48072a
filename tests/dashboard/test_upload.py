from __future__ import annotations

import io
import tarfile

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from qualityhub.inspections.models import Inspection
from qualityhub.registry.models import Domain, Environment, EnvironmentVersion

pytestmark = pytest.mark.django_db
ROW = (
    '{"task_id": "T/0", "prompt": "def f(x):\\n", "entry_point": "f", '
    '"canonical_solution": "    return x\\n", "test": "def check(f):\\n    assert f(1) == 1\\n"}\n'
)


def archive(files, name="sums.tar.gz"):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for path, content in files.items():
            info = tarfile.TarInfo(path)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content.encode()))
    return SimpleUploadedFile(name, data.getvalue())


def test_an_archive_becomes_a_version_and_is_inspected(editor, domain, text_of):
    form = {"domain": domain.public_id, "name": "Sums", "archive": archive({"tasks.jsonl": ROW})}
    response = editor.post("/upload/", form)
    inspection = Inspection.objects.get()
    assert response["Location"] == f"/inspections/{inspection.public_id}/"
    version = inspection.version
    assert (version.adapter, version.task_count, version.source) == ("humaneval", 1, "sums.tar.gz")
    assert (version.environment.slug, version.environment.domain) == ("sums", domain)
    assert inspection.trigger == "upload"
    assert "Inspection under way" in text_of(editor.get(response["Location"]))


def test_a_reference_goes_to_a_new_domain(editor, team):
    form = {"new_domain": "control", "name": "CartPole", "source": "gymnasium:CartPole-v1"}
    response = editor.post("/upload/", form)
    assert response.status_code == 302, response.context["form"].errors
    domain = Domain.objects.get()
    assert (domain.slug, domain.team) == ("control", team)
    assert EnvironmentVersion.objects.get().source == "gymnasium:CartPole-v1"


def test_the_same_content_again_is_the_same_inspection(editor, domain):
    def send():
        files = archive({"tasks.jsonl": ROW})
        return editor.post(
            "/upload/", {"domain": domain.public_id, "name": "sums", "archive": files}
        )

    assert send()["Location"] == send()["Location"]
    assert Inspection.objects.count() == EnvironmentVersion.objects.count() == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": ""}, "This field is required"),
        ({"name": "…"}, "at least one letter or digit"),
        ({"new_domain": "x"}, "Choose a domain or name a new one"),
        ({"domain": ""}, "Choose a domain or name a new one"),
        ({"domain": "", "new_domain": "Not A Slug"}, "Use lower-case letters"),
        ({"source": ""}, "Give either an archive or a reference"),
        ({"source": "ftp:what"}, "ftp:what"),
        ({"source": "gymnasium:x\0"}, "Null characters are not allowed"),
        ({"adapter": "zip"}, "not one of the available choices"),
        ({"domain": "dom_unknown"}, "not one of the available choices"),
    ],
)
def test_wrong_fields_are_named_and_nothing_is_kept(editor, domain, wrong, said):
    form = {"domain": domain.public_id, "name": "sums", "source": "gymnasium:CartPole-v1"} | wrong
    response = editor.post("/upload/", form)
    assert response.status_code == 422
    assert said in response.content.decode()
    assert Domain.objects.count() == 1
    assert not Environment.objects.exists()


@pytest.mark.parametrize(
    "files",
    [
        SimpleUploadedFile("a.zip", b"no archive"),
        SimpleUploadedFile("empty.tar", b""),
        archive({"../../out.txt": "x"}),
        archive({"readme.txt": "no environment"}),
    ],
)
def test_packages_that_are_refused_leave_nothing_behind(editor, domain, files, text_of):
    files.seek(0)
    form = {"new_domain": "fresh", "name": "sums", "archive": files}
    response = editor.post("/upload/", form)
    assert response.status_code == 422
    assert 'role="alert"' in text_of(response)
    assert [row.slug for row in Domain.objects.all()] == ["code"]
    assert not Environment.objects.exists()


def test_the_form_comes_back_as_it_was_sent(editor, domain, hostile, text_of):
    response = editor.post("/upload/", {"domain": domain.public_id, "name": hostile, "source": ""})
    page = text_of(response)
    assert "<script>alert" not in page
    assert f'value="{domain.public_id}" selected' in page


def test_a_link_from_an_environment_fills_the_form(editor, environment, text_of):
    page = text_of(editor.get("/upload/", {"environment": environment.public_id}))
    assert 'value="sums"' in page
    assert f'value="{environment.domain.public_id}" selected' in page


def test_viewers_may_not_upload(member, domain):
    for response in (member.get("/upload/"), member.post("/upload/", {"name": "x"})):
        assert response.status_code == 403
        assert b"contributor" in response.content


def test_domains_of_other_teams_cannot_be_chosen(stranger, domain):
    form = {"domain": domain.public_id, "name": "x", "source": "gymnasium:CartPole-v1"}
    assert stranger.post("/upload/", form).status_code == 422
    assert domain.public_id.encode() not in stranger.get("/upload/").content
    assert stranger.get("/upload/", {"domain": domain.public_id}).status_code == 404
