from __future__ import annotations

import gzip
import io
import zlib

import pytest

from qualityhub.gates.models import Rollout, TaskKey
from qualityhub.gates.services import eval_run_seal

pytestmark = pytest.mark.django_db
ROWS = [{"task": f"t{i}", "attempt": 0, "reward": 1} for i in range(5)]


def stored():
    return Rollout.objects.count()


def test_rows_are_stored_and_counted(owner_api, run, send):
    answer = send(owner_api, run, ROWS)
    assert (answer.status_code, answer.json()) == (
        200,
        {"received": 5, "inserted": 5, "duplicates": 0, "conflicts": [], "conflicts_total": 0},
    )
    shown = owner_api.get(f"/api/v1/eval-runs/{run.public_id}").json()
    assert (shown["rows"], shown["status"]) == (5, "open")


def test_gzip_says_the_same(owner_api, run, send):
    assert send(owner_api, run, ROWS, zipped=True).json()["inserted"] == 5
    assert send(owner_api, run, ROWS).json()["duplicates"] == 5


def test_gzip_of_several_members_is_read_whole(owner_api, run, send, lines):
    body = gzip.compress(lines(ROWS[:2])) + gzip.compress(b"") + gzip.compress(lines(ROWS[2:]))
    answer = send(owner_api, run, body, HTTP_CONTENT_ENCODING="gzip")
    assert answer.json()["inserted"] == 5


def test_a_body_of_unknown_length_is_read_whole(owner_api, run, send, lines):
    """Chunked transfer: no Content-Length, and a server that marks the end itself."""
    answer = send(
        owner_api,
        run,
        b"",
        CONTENT_LENGTH="",
        **{"wsgi.input": io.BytesIO(lines(ROWS)), "wsgi.input_terminated": True},
    )
    assert answer.json()["inserted"] == 5


def test_a_body_shorter_than_announced_stores_nothing(owner_api, run, send, lines):
    body = lines(ROWS)
    announced = {"CONTENT_LENGTH": str(len(body) + 50), "wsgi.input": io.BytesIO(body)}
    answer = send(owner_api, run, body, **announced)
    assert (answer.status_code, answer.json()["code"]) == (422, "results.cut_off")
    assert stored() == 0


def test_the_last_line_may_lack_its_newline(owner_api, run, send, lines):
    assert send(owner_api, run, lines(ROWS)[:-1]).json()["inserted"] == 5


def test_a_conflict_is_listed(owner_api, run, send):
    send(owner_api, run, ROWS)
    answer = send(owner_api, run, [ROWS[3] | {"reward": 0}]).json()
    assert answer["conflicts_total"] == 1
    assert answer["conflicts"] == [
        {"domain": "code", "task": "t3", "attempt": 0, "line": 1, "reason": "content"}
    ]


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ('{"task": "x", "attempt": 0, reward: 1}', "results.bad_row"),
        ('{"task": "x", "attempt": 0, "rew', "results.truncated"),
        ('{"task": "x", "attempt": 0, "reward": NaN}', "results.not_finite"),
        ('{"task": "x", "attempt": 0, "reward": Infinity}', "results.not_finite"),
        ('{"task": "x", "attempt": 0, "reward": 1e999}', "results.not_finite"),
        ('{"task": "x", "attempt": 0, "reward": "1"}', "results.wrong_type"),
        ('{"task": "x", "attempt": 0, "reward": 1, "turns": 2.5}', "results.wrong_type"),
        ('{"task": "x", "attempt": -1, "reward": 1}', "results.wrong_type"),
        ('{"task": "x", "attempt": 3000000000, "reward": 1}', "results.wrong_type"),
        (
            '{"task": "x", "attempt": 0, "reward": 1, "input_tokens": 99999999999999999999999}',
            "results.wrong_type",
        ),
        ('{"task": "", "attempt": 0, "reward": 1}', "results.wrong_type"),
        ('{"task": "x", "attempt": 0}', "results.bad_row"),
        ('{"attempt": 0, "reward": 1}', "results.bad_row"),
        ('{"task": "x", "attempt": 0, "rewards": 1}', "results.unknown_key"),
        ('{"task": "x", "attempt": 0, "reward": 1, "validity": "fine"}', "results.wrong_type"),
        ('{"task": "a\\u0000b", "attempt": 0, "reward": 1}', "results.bad_row"),
        ('{"task": "a\\ud800b", "attempt": 0, "reward": 1}', "results.not_utf8"),
        (
            '{"task": "x", "attempt": 0, "reward": 1, "attributes": {"a": "\\u0000"}}',
            "results.bad_row",
        ),
        (
            '{"task": "x", "attempt": 0, "reward": 1, "attributes": '
            + "[" * 3000
            + "]" * 3000
            + "}",
            None,
        ),
        ("[]", "results.wrong_type"),
        ("null", "results.wrong_type"),
        ('{"domain": "cod", "task": "x", "attempt": 0, "reward": 1}', "results.unknown_domain"),
    ],
)
def test_one_bad_row_in_the_middle_stores_nothing(owner_api, run, send, bad, code):
    answer = send(owner_api, run, [*ROWS[:3], bad, *ROWS[3:]])
    problem = answer.json()
    assert answer.status_code == 422
    assert answer["Content-Type"] == "application/problem+json"
    if code is not None:
        assert problem["code"] == code
    assert "line 4" in problem["detail"]
    assert stored() == 0
    assert not TaskKey.objects.exists()


def test_bytes_that_are_no_text_are_refused(owner_api, run, send, lines):
    body = lines(ROWS) + b'{"task": "\xff\xfe", "attempt": 0, "reward": 1}\n'
    answer = send(owner_api, run, body)
    assert (answer.status_code, answer.json()["code"]) == (422, "results.not_utf8")
    assert stored() == 0


def test_attributes_may_hold_numbers_of_any_size(owner_api, run, send):
    row = '{"task": "x", "attempt": 0, "reward": 1, "attributes": {"n": %s}}'
    assert send(owner_api, run, [row % 123456789012345678901]).json()["inserted"] == 1
    assert Rollout.objects.get().attributes == {"n": 123456789012345678901}
    assert send(owner_api, run, [row % 123456789012345678902]).json()["conflicts_total"] == 1


def test_a_number_beyond_all_sense_is_refused(owner_api, run, send):
    row = '{"task": "x", "attempt": 0, "reward": 1, "attributes": {"n": ' + "9" * 5000 + "}}"
    assert send(owner_api, run, [row]).status_code == 422
    assert stored() == 0


def test_too_many_bytes_are_refused_while_they_flow(owner_api, run, send, lines, settings):
    settings.QH_MAX_ROWS_BYTES = 2000
    rows = [{"task": f"t{i:05}", "attempt": 0, "reward": 1} for i in range(100)]
    for zipped in (False, True):
        answer = send(owner_api, run, rows, zipped=zipped)
        assert (answer.status_code, answer.json()["code"]) == (413, "results.too_large")
    assert stored() == 0


def test_a_bomb_is_refused_at_the_limit(owner_api, run, send, lines):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = packer.compress(lines(ROWS))
    blank = b"\n" * (1024 * 1024)
    body += b"".join(packer.compress(blank) for _ in range(66)) + packer.flush()
    assert len(body) < 200_000
    answer = send(owner_api, run, body, HTTP_CONTENT_ENCODING="gzip")
    assert (answer.status_code, answer.json()["code"]) == (413, "results.too_large")
    assert stored() == 0


def test_a_line_without_end_is_refused(owner_api, run, send):
    answer = send(owner_api, run, b'{"task": "' + b"x" * 1_200_000)
    assert answer.status_code == 413
    assert answer.json()["code"] == "results.line_too_long"


@pytest.mark.parametrize("spoil", ["not gzip", "cut", "flipped", "trailing"])
def test_bad_gzip_is_refused(owner_api, run, send, lines, spoil):
    body = gzip.compress(lines(ROWS))
    body = {
        "not gzip": lines(ROWS),
        "cut": body[: len(body) // 2],
        "flipped": body[:-6] + bytes([body[-6] ^ 255]) + body[-5:],
        "trailing": body + b"junk",
    }[spoil]
    answer = send(owner_api, run, body, HTTP_CONTENT_ENCODING="gzip")
    assert (answer.status_code, answer.json()["code"]) == (422, "results.bad_gzip")
    assert stored() == 0


def test_an_unknown_encoding_is_refused(owner_api, run, send):
    answer = send(owner_api, run, ROWS, HTTP_CONTENT_ENCODING="br")
    assert (answer.status_code, answer.json()["code"]) == (422, "results.encoding")


@pytest.mark.parametrize("body", [b"", b"\n \n"])
def test_an_empty_body_is_refused(owner_api, run, send, body):
    answer = send(owner_api, run, body)
    assert (answer.status_code, answer.json()["code"]) == (422, "results.empty")


@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded"])
def test_another_media_type_is_refused_with_the_right_one(owner_api, run, send, kind):
    answer = send(owner_api, run, ROWS, content_type=kind)
    assert answer.status_code == 415
    assert "application/x-ndjson" in answer.json()["detail"]


def test_a_sealed_run_answers_conflict(owner_api, run, send):
    send(owner_api, run, ROWS)
    eval_run_seal(run=run)
    answer = send(owner_api, run, [{"task": "new", "attempt": 0, "reward": 1}])
    assert (answer.status_code, answer.json()["code"]) == (409, "runs.sealed")
    assert stored() == 5


def test_a_repeated_request_is_answered_the_same_whatever_its_compression(owner_api, run, send):
    first = send(owner_api, run, ROWS, key="batch-1")
    again = send(owner_api, run, ROWS, key="batch-1", zipped=True)
    assert again.json() == first.json()
    assert again.json()["inserted"] == 5
    assert again["Idempotency-Replayed"] == "true"
    run.refresh_from_db()
    assert (run.rows, run.duplicates) == (5, 0)


def test_a_key_used_for_other_rows_is_refused(owner_api, run, send):
    send(owner_api, run, ROWS, key="batch-1")
    answer = send(owner_api, run, [{"task": "new", "attempt": 0, "reward": 1}], key="batch-1")
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency.mismatch")
    assert stored() == 5


def test_a_refused_request_may_be_repeated_with_its_key(owner_api, run, send):
    assert send(owner_api, run, [*ROWS, "{"], key="k").status_code == 422
    assert send(owner_api, run, ROWS, key="k").json()["inserted"] == 5


def test_missing_domains_are_made_only_when_asked_for(owner_api, narrow, team, run, send):
    rows = [{"domain": "maths", "task": "t", "attempt": 0, "reward": 1}]
    assert send(owner_api, run, rows).json()["code"] == "results.unknown_domain"
    refused = send(narrow, run, rows, query="?create_domains=true")
    assert (refused.status_code, refused.json()["code"]) == (403, "access.scope")
    assert send(owner_api, run, rows, query="?create_domains=true").json()["inserted"] == 1
    assert team.domains.filter(slug="maths").exists()


def test_a_name_no_domain_can_have_is_refused_with_its_line(owner_api, run, send):
    rows = [*ROWS, {"domain": "No Slug!", "task": "t", "attempt": 0, "reward": 1}]
    answer = send(owner_api, run, rows, query="?create_domains=true")
    assert answer.status_code == 422
    assert "line 6" in answer.json()["detail"]
    assert stored() == 0


def test_who_may_send(teammate_api, read_api, anonymous_api, run, send):
    assert send(anonymous_api, run, ROWS).status_code == 401
    assert send(read_api, run, ROWS).json()["code"] == "access.scope"
    assert send(teammate_api, run, ROWS).json()["code"] == "access.role"
    assert stored() == 0


def test_another_teams_run_is_not_there(owner_api, outsider_api, run, send):
    foreign = send(outsider_api, run, ROWS)
    unknown = send(owner_api, "run_aaaaaaaaaaaaaaaaaaaaaaaaaa", ROWS)
    assert (foreign.status_code, unknown.status_code) == (404, 404)
    assert foreign.json()["detail"] == unknown.json()["detail"]
    assert send(owner_api, "run_'; --", ROWS).status_code == 404
    assert stored() == 0


def test_an_outsiders_domain_is_not_found_by_rows(owner_api, run, send, other_team):
    from qualityhub.registry.models import Domain

    Domain.objects.create(team=other_team, slug="theirs", name="Theirs")
    rows = [{"domain": "theirs", "task": "t", "attempt": 0, "reward": 1}]
    assert send(owner_api, run, rows).json()["code"] == "results.unknown_domain"


@pytest.mark.parametrize("query", ["?create_domains=yes", "?create_domain=true"])
def test_a_query_that_is_not_understood_is_refused(owner_api, run, send, query):
    assert send(owner_api, run, ROWS, query=query).status_code == 400


def test_a_request_takes_few_queries(owner_api, run, send, django_assert_max_num_queries):
    with django_assert_max_num_queries(26):
        send(owner_api, run, [{"task": f"t{i}", "attempt": 0, "reward": 1} for i in range(3000)])
