"""Checks how the leader of several registries is chosen, and what registries tell each other."""

from __future__ import annotations

from typing import Any

from headrace.registry.cluster.membership import Identity, choose_leader


def member(host: str, *, is_eligible: bool = True) -> dict[str, Any]:
    return {**Identity(host, 8081).encode(), "master_eligibility": is_eligible}


def test_the_first_address_leads_if_there_was_no_leader() -> None:
    assert choose_leader({"m1": member("b"), "m2": member("a")}, "") == "m2"


def test_a_leader_stays_while_it_is_in_the_group() -> None:
    members = {"m1": member("b"), "m2": member("a")}
    assert choose_leader(members, "m1") == "m1"
    assert choose_leader(members, "gone") == "m2"


def test_a_member_that_may_not_lead_is_passed_over() -> None:
    assert choose_leader({"m1": member("a", is_eligible=False), "m2": member("b")}, "m1") == "m2"
    assert choose_leader({"m1": member("a", is_eligible=False), "unreadable": {}}, "") is None


def test_an_identity_has_confluents_members() -> None:
    assert Identity("h", 1, "https").encode() == {
        "version": 1, "host": "h", "port": 1, "master_eligibility": True, "scheme": "https",
    }  # fmt: skip
    assert Identity("::1", 1).url == "http://[::1]:1"
