"""What is read has a tag, and is not sent again to who has it."""

from dataclasses import replace
from typing import Any

import pytest

from tests.http.records import request_of, run_of
from tests.http.scripted import Api
from threadhold.adapters.http.tags import names, tag_of
from threadhold.runner.machine import RunStatus

TAG = '"0123"'


@pytest.mark.parametrize("header", [TAG, f"W/{TAG}", f'"x", {TAG}', f'W/"x",W/{TAG} , "y"', "*", " * "])
def test_a_header_names_the_tag(header: str) -> None:
    assert names(header, TAG)


@pytest.mark.parametrize("header", ["", "0123", '"012"', '"01234"', '"*"', 'W/"x"', '"0123', "\x00"])
def test_a_header_does_not_name_it(header: str) -> None:
    assert not names(header, TAG)


def test_a_tag_is_of_what_is_told() -> None:
    assert tag_of(run_of()) == tag_of(run_of())
    assert tag_of(run_of()) != tag_of(run_of(status=RunStatus.PAUSED))
    assert tag_of(run_of(error={"a": 1, "b": 2})) != tag_of(run_of(error={"a": 1, "b": 3}))


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("what", ["threads", "runs", "messages", "requests"])
async def test_what_has_not_changed_is_not_sent_again(api: Api, what: str) -> None:
    ids = {"threads": api.runner.add_thread(), "runs": "run-1", "messages": "message-1", "requests": "q"}
    api.runner.known_requests = {"q": request_of("q")}
    path = f"/v1/{what}/{ids[what]}"
    first = await api.client.get(path)
    tag = first.headers["etag"]
    again = await api.client.get(path, headers={"If-None-Match": f'"other", W/{tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert "content-type" not in again.headers
    assert again.headers["cache-control"] == first.headers["cache-control"] == "private, no-cache"
    newer = await api.client.get(path, headers={"If-None-Match": '"other"'})
    assert (newer.status_code, newer.json(), newer.headers["etag"]) == (200, first.json(), tag)


@pytest.mark.asyncio(loop_scope="module")
async def test_what_has_changed_is_sent(api: Api) -> None:
    changes: list[dict[str, Any]] = [{"status": RunStatus.PAUSED}, {"attempt": 2}, {"stop_requested": True}]
    tags = {(await api.client.get("/v1/runs/run-1")).headers["etag"]}
    for change in changes:
        api.runner.known_runs["run-1"] = replace(api.runner.known_runs["run-1"], **change)
        newer = await api.client.get("/v1/runs/run-1", headers={"If-None-Match": ", ".join(tags)})
        assert newer.status_code == 200
        tags.add(newer.headers["etag"])
    assert len(tags) == 4
