"""Builds what enforces the quotas of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.quotas.connection_rates import ConnectionRates
from headrace.broker.quotas.controller_mutations import ControllerMutations
from headrace.broker.quotas.rates import windows_of
from headrace.broker.quotas.throttling import Throttling

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.quotas.client_quotas import ClientQuotas
    from headrace.broker.runtime import BrokerRuntime


class Enforcement(NamedTuple):
    throttling: Throttling
    mutations: ControllerMutations
    connections: ConnectionRates


def make_enforcement(quotas: ClientQuotas, config: BrokerConfig, runtime: BrokerRuntime) -> Enforcement:
    windows = windows_of(config, "quota.window")
    return Enforcement(
        Throttling(quotas, runtime.clock, runtime.timer, windows),
        ControllerMutations(quotas, runtime.clock, windows_of(config, "controller.quota.window")),
        ConnectionRates(quotas, config, runtime.clock, windows),
    )
