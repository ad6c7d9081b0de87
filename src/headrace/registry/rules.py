"""Checks rule sets, which clients run. The registry gives rules no meaning, but refuses those that no client could run.

A rule set has up to three lists: ``migrationRules`` with a mode of UPGRADE, DOWNGRADE or UPDOWN, and ``domainRules``
and ``encodingRules`` with a mode of WRITE, READ or WRITEREAD. A rule needs a type, and a name that no other rule has.
"""

from __future__ import annotations

from typing import Any

from headrace.registry.errors import invalid_rule_set

_MIGRATION_MODES = ("UPGRADE", "DOWNGRADE", "UPDOWN")
_DOMAIN_MODES = ("WRITE", "READ", "WRITEREAD")
_MODES = {"migrationRules": _MIGRATION_MODES, "domainRules": _DOMAIN_MODES, "encodingRules": _DOMAIN_MODES}
DEFAULT_KIND, DEFAULT_MODE = "TRANSFORM", "WRITEREAD"
_KINDS = (DEFAULT_KIND, "CONDITION")
_SEVERAL_ACTIONS = ("UPDOWN", "WRITEREAD")
_MAX_NAME_CHARACTERS = 256


def check_rule_set(rule_set: Any) -> None:
    """
    :param rule_set: a member of a request; None for none.
    :raises RegistryError: 42210 if it is not a rule set.
    """
    if rule_set is None:
        return
    if not isinstance(rule_set, dict):
        raise invalid_rule_set("it is not an object")
    names: set[str] = set()
    for member, modes in _MODES.items():
        rules = rule_set.get(member)
        if rules is None:
            continue
        if not isinstance(rules, list):
            raise invalid_rule_set(f"{member} is not a list")
        for rule in rules:
            _check_rule(rule, member, modes)
            if rule["name"] in names:
                raise invalid_rule_set(f"two rules have the name {rule['name']}")
            names.add(rule["name"])


def _check_rule(rule: Any, member: str, modes: tuple[str, ...]) -> None:
    if not isinstance(rule, dict):
        raise invalid_rule_set(f"a rule of {member} is not an object")
    name = rule.get("name")
    if not isinstance(name, str) or not _is_name(name):
        raise invalid_rule_set(
            f"a rule of {member} has the name {str(name)[:80]!r}; a name has at most {_MAX_NAME_CHARACTERS} letters, "
            "digits, _ and -, and begins with a letter or _"
        )
    kind, mode = rule.get("kind") or DEFAULT_KIND, rule.get("mode") or DEFAULT_MODE
    if kind not in _KINDS:
        raise invalid_rule_set(f"the rule {name} has the kind {str(kind)[:40]!r}; use TRANSFORM or CONDITION")
    if mode not in modes:
        raise invalid_rule_set(f"the rule {name} of {member} has the mode {str(mode)[:40]!r}; use {', '.join(modes)}")
    if not isinstance(rule.get("type"), str):
        raise invalid_rule_set(f"the rule {name} has no type")
    for action in ("onSuccess", "onFailure"):
        if mode not in _SEVERAL_ACTIONS and "," in str(rule.get(action) or ""):
            raise invalid_rule_set(f"the rule {name} has several actions in {action}, and the mode {mode} has one step")


def _is_name(name: str) -> bool:
    rest = name.replace("_", "a").replace("-", "a")
    return 1 <= len(name) <= _MAX_NAME_CHARACTERS and rest.isalnum() and (name[0].isalpha() or name[0] == "_")
