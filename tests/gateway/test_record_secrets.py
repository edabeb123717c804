"""Secrets in records: encrypted where they are kept, in no view, and opened for executors alone."""

import base64
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.gateway.record_gateway import NOTE, RECORDS, Gateway, gateway_for, told
from toolwire.breadcrumbs.rules.callers import Caller, Role
from toolwire.breadcrumbs.sealing import KeyFile, Sealer
from toolwire.errors import NotFound, SettingsError
from toolwire.protocol.breadcrumbs import RecordQuery, Sensitivity
from toolwire.protocol.context import Context

KEY = "sk-9f8e7d6c5b4a"
CONFIG: dict[str, Any] = {
    "schema_name": "tool.config.v1",
    "title": "Keys of openrouter",
    "tags": ["tool:openrouter"],
    "context": {"tools": ["openrouter"], "agents": ["cli"], "config": {"apiKey": KEY, "defaultModel": "small"}},
}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway_for(tmp_path) as found:
        yield found


async def configured(gateway: Gateway) -> str:
    made = await gateway["ADA"].post(RECORDS, json=CONFIG, headers={"idempotency-key": "config"})
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


async def opened(gateway: Gateway, config_id: str, *, tool: str = "openrouter", agent: str = "cli") -> Any:
    """What the executor of a tool is given of a configuration."""
    return await gateway.service.open_config(config_id, tool, Context(agent=agent))


async def everything(gateway: Gateway) -> str:
    """All that can be read of records, by any caller, and all that the store keeps of them."""
    store, said = gateway.store, []
    for row in await store.records(RecordQuery(), project="acme"):
        said += [repr(row), repr(await store.record_history(row.value.id, project="acme"))]
        place = f"{RECORDS}/{row.value.id}"
        for client in gateway.clients.values():
            paths = (place, f"{place}?view=llm", f"{place}/full", f"{place}/history", f"{RECORDS}?include_context=true")
            said += [(await client.get(path)).text for path in paths]
            said.append((await client.post(f"{RECORDS}/search", json={"text": f"{KEY} openrouter"})).text)
        for role in Role:
            said.append(repr(await gateway.service.changes(0, Caller("ADA", role))))
    said.append(repr(await store.record_changes(project="acme")))
    said.append(repr(await store.audit_log(project="acme")))
    return "\n".join(said)


@pytest.mark.feature("F237")
async def test_T234_the_secret_of_a_configuration_is_in_no_view_and_encrypted_where_it_is_kept(
    gateway: Gateway,
) -> None:
    config_id = await configured(gateway)
    patch = {"context": {"config": {"apiKey": f"{KEY}-new"}}, "title": "Newer keys"}
    patched = await gateway["ADA"].patch(f"{RECORDS}/{config_id}", json=patch, headers={"if-match": "1"})
    assert (patched.json()["context"], patched.json()["is_sealed"], patched.json()["sensitivity"]) == (
        {},
        True,
        "secret",
    )

    told_anywhere = await everything(gateway)
    assert "Newer keys" in told_anywhere
    assert KEY not in told_anywhere
    assert "apiKey" not in told_anywhere
    assert base64.b64encode(KEY.encode()).decode()[:12] not in told_anywhere
    assert (await gateway["ADA"].get(f"{RECORDS}?text={KEY}")).json()["data"] == []
    assert (await gateway["ADA"].delete(f"{RECORDS}/{config_id}")).status_code == 204
    assert KEY not in await everything(gateway)


async def test_T234_control_the_executor_of_a_tool_reads_the_secret(gateway: Gateway) -> None:
    config_id = await configured(gateway)
    await gateway["ADA"].patch(
        f"{RECORDS}/{config_id}", json={"context": {"config": {"temperature": 0}}}, headers={"if-match": "1"}
    )
    given = await opened(gateway, config_id)
    assert given == {"apiKey": KEY, "defaultModel": "small", "temperature": 0}
    row = (await gateway.store.audit_log(project="acme"))[-1]
    assert (row.event, row.tool, row.detail["record"]) == ("record_secret_used", "openrouter", config_id)


@pytest.mark.parametrize(("tool", "agent"), [("openrouter", "other"), ("venice", "cli"), ("openrouter", "")])
async def test_T234_no_other_tool_or_agent_opens_a_secret(gateway: Gateway, tool: str, agent: str) -> None:
    config_id = await configured(gateway)
    with pytest.raises(NotFound, match="does not exist, or this call may not use it"):
        await opened(gateway, config_id, tool=tool, agent=agent)
    row = (await gateway.store.audit_log(project="acme"))[-1]
    assert (row.event, row.status, row.tool, row.agent) == ("record_refused", "denied", tool, agent)


async def test_a_secret_note_is_sealed_too_and_is_no_configuration(gateway: Gateway) -> None:
    made = await gateway.created(sensitivity="secret", context={"pin": KEY})
    assert (made["context"], made["is_sealed"]) == ({}, True)
    assert KEY not in await everything(gateway)
    with pytest.raises(NotFound):
        await opened(gateway, made["id"])


async def test_a_repeated_request_for_a_secret_is_known_as_one(gateway: Gateway) -> None:
    first = await configured(gateway)
    assert await configured(gateway) == first
    other = {**CONFIG, "context": {"config": {"apiKey": "another"}}}
    assert told(await gateway["ADA"].post(RECORDS, json=other, headers={"idempotency-key": "config"}))[0] == 409


async def test_what_does_not_fit_a_secret_is_told_without_its_values(gateway: Gateway) -> None:
    config_id = await configured(gateway)
    schema = {"properties": {"config": {"properties": {"apiKey": {"enum": ["another"]}}}}}
    await gateway["ADA"].post(
        RECORDS,
        json={"schema_name": "schema.def.v1", "context": {"defines_schema": "tool.config.v1", "json_schema": schema}},
    )
    refused = await gateway["ADA"].patch(f"{RECORDS}/{config_id}", json={"title": "A"}, headers={"if-match": "1"})
    assert told(refused) == (400, "bad_record")
    assert KEY not in refused.text
    assert "config.apiKey" in refused.text


async def test_the_key_file_is_readable_by_its_owner_alone(gateway: Gateway) -> None:
    await configured(gateway)
    assert stat.S_IMODE(gateway.keys.path.stat().st_mode) == 0o600
    gateway.keys.path.chmod(0o644)
    await gateway.created(sensitivity="secret")
    assert stat.S_IMODE(gateway.keys.path.stat().st_mode) == 0o600


async def test_a_missing_key_is_told_with_what_to_do_and_other_records_stay_usable(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    config_id = await configured(gateway)
    kept = gateway.keys.path.read_bytes()
    gateway.keys.path.unlink()
    with pytest.raises(NotFound):
        await opened(gateway, config_id)
    assert "restore that file, or write the secret anew" in caplog.text
    patch = await gateway["ADA"].patch(f"{RECORDS}/{config_id}", json={"title": "A"}, headers={"if-match": "1"})
    assert told(patch) == (503, "records_unavailable")
    assert (await gateway["ADA"].get(f"{RECORDS}/{config_id}")).status_code == 200
    assert (await gateway["ANN"].post(RECORDS, json=NOTE)).status_code == 201

    gateway.keys.path.write_bytes(base64.b64encode(os.urandom(64)) + b"\n" + kept)  # rotated: the old key still opens
    assert (await opened(gateway, config_id))["apiKey"] == KEY
    gateway.keys.path.write_bytes(b"nonsense\n")
    with pytest.raises(NotFound):
        await opened(gateway, config_id)
    assert "does not hold keys" in caplog.text


async def test_T235_a_sealed_context_opens_in_no_other_record_or_project(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    """Who can write to the database, and has no key, cannot give a tool the secret of another one."""
    config_id = await configured(gateway)
    sealed = await gateway.store.record(config_id, project="acme")
    other = replace(sealed, id="other")
    await gateway.store.create_record(other)
    with pytest.raises(NotFound):
        await opened(gateway, "other")
    assert "was changed in the store or belongs to another record" in caplog.text
    with pytest.raises(SettingsError, match="was changed"):
        Sealer(gateway.keys, "elsewhere").unseal(sealed.context, config_id)
    box = str(sealed.context["box"])
    changed = {**sealed.context, "box": ("A" if box[0] != "A" else "B") + box[1:]}
    with pytest.raises(SettingsError, match="was changed"):
        Sealer(gateway.keys, "acme").unseal(changed, config_id)


async def test_T235_control_the_same_box_opens_in_its_own_place(gateway: Gateway) -> None:
    config_id = await configured(gateway)
    sealed = await gateway.store.record(config_id, project="acme")
    assert sealed.sensitivity is Sensitivity.SECRET
    assert Sealer(KeyFile(gateway.keys.path), "acme").unseal(sealed.context, config_id) == CONFIG["context"]


async def test_T234_who_patches_a_secret_does_not_learn_how_long_it_is(gateway: Gateway) -> None:
    for more in (70_000, 786_400):  # beyond what a secret, and what any record may have
        answers = set()
        for secret in ("x", "x" * 9):
            made = await gateway.created(context={"password": secret}, sensitivity="secret")
            patch = {"context": {"more": "y" * more}}
            refused = await gateway["BEN"].patch(f"{RECORDS}/{made['id']}", json=patch, headers={"if-match": "1"})
            assert told(refused) == (400, "bad_record")
            answers.add(refused.json()["error"]["message"])
        assert len(answers) == 1, answers


async def test_what_is_wrong_with_a_patch_of_a_secret_is_told(gateway: Gateway) -> None:
    made = await gateway.created(context={"password": "x"}, sensitivity="secret")
    refused = await gateway["BEN"].patch(
        f"{RECORDS}/{made['id']}", json={"title": "two\nlines"}, headers={"if-match": "1"}
    )
    assert "title must be text on one line" in refused.text
