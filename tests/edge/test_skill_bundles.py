"""Skills that are pushed to a device: signed, versioned, accepted by the device's own file, and whole or not there."""

import io
import random
import tarfile
import zlib
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from toolwire.edge.device.skill_installer import SkillInstaller
from toolwire.edge.keys import PrivateKey, PublicKeys
from toolwire.edge.skill_bundles import BundleHead, pack_skill, piece_payloads
from toolwire.errors import DefinitionError
from toolwire.toolbox.skills.catalog import scan

TOML = """\
name = "lamp"
version = "{version}"
[[tools]]
name = "blink"
binary = "bin/blink"
description = "Blink the lamp."
"""
KEY, OTHER = PrivateKey.generate(), PrivateKey.generate()


def skill(folder: Path, version: str = "1.0", says: str = "on") -> Path:
    program = folder / "bin" / "blink"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\necho {says}\n")
    program.chmod(0o755)
    (folder / "skill.toml").write_text(TOML.format(version=version))
    return folder


def payloads(folder: Path, key: PrivateKey = KEY, *, older: bool = False, most: int = 100) -> list[dict[str, Any]]:
    head, packed = pack_skill(folder, older=older)
    return list(piece_payloads(head, packed, key.key_id, key.sign, most))


class Device:
    """A device that accepts some skills of one orchestrator."""

    def __init__(self, folder: Path, accepts: str = "lamp") -> None:
        self.skills = folder / "skills"
        self.skills.mkdir(exist_ok=True)
        self.installs = 0
        self._take = SkillInstaller(self.skills, PublicKeys([KEY.public]), [accepts], self._count)

    def _count(self) -> None:
        self.installs += 1

    async def take(self, pieces: list[dict[str, Any]]) -> dict[str, Any]:
        said: dict[str, Any] = {}
        for piece in pieces:
            said = await self._take(piece)
            if said["status"] == "error":
                break
        return said

    @property
    def versions(self) -> list[tuple[str, str]]:
        return [(each.skill.name, each.skill.version) for each in scan(self.skills, lambda *_: True).found]


async def test_a_skill_comes_whole_from_pieces_in_any_order_and_any_number_of_times(tmp_path: Path) -> None:
    device, pieces = Device(tmp_path), payloads(skill(tmp_path / "lamp"))
    assert len(pieces) > 2
    shuffled = pieces[1:] * 3
    random.Random(7).shuffle(shuffled)
    assert (await device.take(shuffled))["result"] == "received"
    assert device.versions == []
    said = await device.take([pieces[0]])
    assert (said["result"], said["tools"]) == ("installed", ["blink"])
    assert (await device.take([pieces[0]]))["result"] == "installed"
    assert (device.installs, device.versions) == (1, [("lamp", "1.0")])
    [installed] = [each for each in device.skills.iterdir() if each.name != ".staged"]
    assert (installed / "bin" / "blink").read_text().endswith("echo on\n")


async def test_pieces_that_came_before_a_restart_count(tmp_path: Path) -> None:
    pieces = payloads(skill(tmp_path / "lamp"))
    assert (await Device(tmp_path).take(pieces[:-1]))["result"] == "received"
    again = Device(tmp_path)
    assert (await again.take(pieces[-1:]))["result"] == "installed"
    assert again.versions == [("lamp", "1.0")]


async def test_versions_only_rise_unless_going_back_is_asked_for(tmp_path: Path) -> None:
    device = Device(tmp_path)
    for version in ("1.9", "1.10"):
        assert (await device.take(payloads(skill(tmp_path / "lamp", version))))["result"] == "installed"
    older = payloads(skill(tmp_path / "lamp", "1.9"))
    assert "push with --allow-older" in (await device.take(older))["error"]
    same = payloads(skill(tmp_path / "lamp", "1.10", says="off"))
    assert "raise the version" in (await device.take(same))["error"]
    assert device.versions == [("lamp", "1.10")]
    back = payloads(skill(tmp_path / "lamp", "1.9"), older=True)
    assert (await device.take(back))["result"] == "installed"
    assert device.versions == [("lamp", "1.9")]


async def test_T209_a_skill_that_is_not_accepted_or_not_signed_is_not_taken(tmp_path: Path) -> None:
    folder = skill(tmp_path / "lamp")
    refused = await Device(tmp_path, "door*").take(payloads(folder))
    assert "skills.accept" in refused["error"]
    device = Device(tmp_path)
    assert "not signed by an orchestrator" in (await device.take(payloads(folder, OTHER)))["error"]
    forged = [{**piece, "version": "9.0"} for piece in payloads(folder)]
    assert "not signed by an orchestrator" in (await device.take(forged))["error"]
    downgraded = [{**piece, "older": True} for piece in payloads(folder)]
    assert "not signed by an orchestrator" in (await device.take(downgraded))["error"]
    pieces = payloads(folder)
    swapped = [*pieces[:-1], {**pieces[-1], "data": pieces[0]["data"]}]
    assert "do not make the bundle that was signed" in (await device.take(swapped))["error"]
    assert (device.installs, device.versions) == (0, [])


async def test_T209_control_the_same_skill_is_taken_where_it_is_accepted_and_signed(tmp_path: Path) -> None:
    device = Device(tmp_path, "*")
    assert (await device.take(payloads(skill(tmp_path / "lamp"))))["result"] == "installed"


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/../../evil", "link"])
async def test_T209_a_signed_bundle_writes_nothing_outside_of_its_folder(tmp_path: Path, name: str) -> None:
    device, body = Device(tmp_path), io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as tar:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = (tarfile.SYMTYPE, "/etc") if name == "link" else (tarfile.REGTYPE, "")
        tar.addfile(entry)
    packed = zlib.compress(body.getvalue())
    head = BundleHead("lamp", "1", sha256(packed).hexdigest(), len(packed))
    said = await device.take(list(piece_payloads(head, packed, KEY.key_id, KEY.sign, 10_000)))
    assert "is not a file inside of it" in said["error"]
    assert device.versions == []
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    "change",
    [{"skill": "../x"}, {"skill": ".x"}, {"digest": "../../x"}, {"version": "../1"}, {"index": 9999}, {"data": "?"},
     {"size": 10**9}, {"count": 0}],
)  # fmt: skip
async def test_T209_a_piece_that_makes_no_sense_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    device = Device(tmp_path, "*")
    said = await device.take([{**payloads(skill(tmp_path / "lamp"))[0], **change}])
    assert said["status"] == "error"
    assert list(device.skills.iterdir()) == []


def test_a_skill_without_a_name_of_its_own_is_not_packed(tmp_path: Path) -> None:
    folder = skill(tmp_path / "lamp")
    (folder / "skill.toml").write_text(TOML.format(version="1").replace('name = "lamp"\n', ""))
    with pytest.raises(DefinitionError, match='name = "lamp"'):
        pack_skill(folder)
