"""Primitives: names, digests, and where the two numberings agree."""

from __future__ import annotations

import pytest

from gnomon.errors import ProblemError, UsageError
from gnomon.spaces.cells.primitives import (
    NUMBERINGS,
    Primitive,
    default_of,
    families_of,
    named,
    parse_name,
    published_primitives,
)
from gnomon.spaces.unit import Symbol

BOTH: dict[str, dict[str, Primitive]] = {numbering: published_primitives(numbering) for numbering in NUMBERINGS}


def test_there_are_31_of_three_families() -> None:
    for known in BOTH.values():
        families = families_of(known.values())
        assert {family: len(ones) for family, ones in families.items()} == {"Mobile": 9, "Res": 9, "VGG": 13}
        assert all([one.number for one in ones] == list(range(len(ones))) for ones in families.values())
        assert all(name == one.name and one.meaning for name, one in known.items())


def test_the_numberings_agree_exactly_where_structure_does() -> None:
    first, second = BOTH["ssprofile"], BOTH["aw_nas"]
    same = {name for name in first if first[name].digest == second[name].digest}
    vgg = {f"VGGblock_{k}" for k in range(13)}
    assert same == {"Mobileblock_0", "Resblock_0", "Resblock_1", "Resblock_2"} | vgg
    assert {name for name in first if first[name].meaning == second[name].meaning} == same


@pytest.mark.parametrize("numbering", NUMBERINGS)
def test_digests_differ_exactly_where_structure_does(numbering: str) -> None:
    digests = {one.digest for one in BOTH[numbering].values()}
    assert len(digests) == len(BOTH[numbering])


def test_the_digest_is_of_what_a_block_makes_and_not_of_its_name() -> None:
    def block(x: Symbol, channels: int, stride: int) -> Symbol:
        return x.conv(channels, 3, stride=stride)

    def reducing(x: Symbol, channels: int, stride: int) -> Symbol:
        return x.conv(channels, 3 if stride == 1 else 5, stride=stride)

    digests = {
        Primitive(family="A", number=0, block=block).digest,
        Primitive(family="B", number=7, block=block, meaning="the same").digest,
    }
    assert len(digests) == 1
    assert Primitive(family="A", number=0, block=reducing).digest not in digests


def test_numbers_mean_what_each_tool_says() -> None:
    assert BOTH["ssprofile"]["Mobileblock_1"].meaning == "3x3, expansion 3"
    assert BOTH["aw_nas"]["Mobileblock_1"].meaning == "5x5, expansion 1"
    assert BOTH["ssprofile"]["Resblock_6"].meaning == "3x3, expansion 4"
    assert BOTH["aw_nas"]["Resblock_6"].meaning == "3x3, expansion 1/4"
    with pytest.raises(UsageError, match="no numbering 'nasbench'"):
        published_primitives("nasbench")


def test_defaults() -> None:
    families = families_of(BOTH["ssprofile"].values())
    assert [default_of(family, ones).name for family, ones in families.items()] == [
        "Mobileblock_1", "Resblock_1", "VGGblock_1",
    ]  # fmt: skip
    assert default_of("VGG", families["VGG"][5:]).number == 6
    assert default_of("Mobile", [families["Mobile"][k] for k in (0, 3, 8)]).number == 3, "as ssprofile takes it"
    assert default_of("Res", families["Res"][4:5]).number == 4
    assert default_of("Own", families["VGG"]).number == 0


@pytest.mark.parametrize(
    ("name", "parts"),
    [("Mobileblock_3", ("Mobile", 3)), ("ResXblock_0", ("ResX", 0)), ("Myblock_1block_2", ("Myblock_1", 2))],
)
def test_names_are_a_family_and_a_number(name: str, parts: tuple[str, int]) -> None:
    assert parse_name(name) == parts
    assert Primitive(family=parts[0], number=parts[1], block=lambda x, channels, stride: x).name == name


@pytest.mark.parametrize(
    "name",
    ["", "block_1", "Mobileblock_", "Mobileblock_x", "Mobileblock_1 ", "Möbileblock_1", "Mobileblock_²", "1block_1"],
)
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ProblemError, match="not the name of a primitive"):
        parse_name(name)


def test_unknown_names_are_all_told() -> None:
    with pytest.raises(ProblemError, match="not known: VGGblock_13, Xblock_1") as refused:
        named(BOTH["ssprofile"], ["VGGblock_13", "VGGblock_1", "Xblock_1"])
    assert "VGGblock_12" in refused.value.hint
    with pytest.raises(ProblemError, match="not known: Mobilblock_1") as refused:
        named(BOTH["ssprofile"], ["Mobilblock_1"])
    assert refused.value.hint.startswith("Did you mean 'Mobileblock_1'?")
