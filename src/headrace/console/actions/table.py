"""THE registry of actions. Routes, the OpenAPI document and the tests of protection come from it."""

from __future__ import annotations

from headrace.console.actions import (
    abort_transaction,
    add_partitions,
    cancel_reassignment,
    change_topic_setting,
    copy_record,
    create_topic,
    delete_group,
    delete_group_offsets,
    delete_records,
    delete_topic,
    produce_record,
    elect_preferred_leaders,
    reassign_partitions,
    remove_member,
    remove_throttles,
    reset_offsets,
    terminate_transaction,
)
from headrace.console.actions.action import Action

ACTIONS: tuple[Action, ...] = (
    create_topic.ACTION,
    delete_topic.ACTION,
    add_partitions.ACTION,
    change_topic_setting.ACTION,
    delete_records.ACTION,
    produce_record.ACTION,
    copy_record.ACTION,
    reset_offsets.ACTION,
    delete_group.ACTION,
    delete_group_offsets.ACTION,
    remove_member.ACTION,
    reassign_partitions.ACTION,
    cancel_reassignment.ACTION,
    remove_throttles.ACTION,
    elect_preferred_leaders.ACTION,
    terminate_transaction.ACTION,
    abort_transaction.ACTION,
)
