"""Dynamic passwords: plain in memory, encrypted in the tree."""

import json

import pytest

from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.configs.stored_passwords import StoredPasswords, is_password
from headrace.broker.lone.dynamic_configs import LoneDynamicConfigs
from headrace.coordination.client.local_client import LocalCoordination
from headrace.coordination.paths import broker_config_path
from headrace.coordination.tree.host import TreeHost
from headrace.protocol.errors import InvalidRequest
from headrace.security.password_encoder import PasswordEncoder
from headrace.testing import ManualClock

JAAS = "listener.name.external.scram-sha-256.sasl.jaas.config"
SECRETS = {"listener.name.external.ssl.key.password": "canary-1", JAAS: "canary-2"}
CONFIGS = {**SECRETS, "max.connections": "7"}


def config(**others):
    names = {name.replace("_", "."): value for name, value in others.items()}
    return BrokerConfig.load({"listeners": "PLAINTEXT://127.0.0.1:9092", "broker.id": "0", **names})


def with_secret(secret="one", **others):
    return config(password_encoder_secret=secret, password_encoder_iterations="1024", **others)


@pytest.mark.parametrize("name", [*SECRETS, "ssl.keystore.key", "sasl.jaas.config"])
def test_passwords_are_known_by_the_end_of_their_names(name):
    assert is_password(name)


def test_other_settings_are_no_passwords():
    assert not is_password("listener.name.external.ssl.keystore.location")
    assert not is_password("password.encoder.secret"), "it cannot change at run time"


def test_only_passwords_are_encrypted():
    passwords = StoredPasswords(with_secret())
    stored = passwords.encrypted(CONFIGS, per_broker=True)
    assert stored["max.connections"] == "7"
    assert "canary" not in str(stored)
    assert passwords.decrypted(stored) == CONFIGS


def test_without_a_secret_a_password_is_refused():
    with pytest.raises(InvalidRequest, match="Password encoder secret not configured") as failure:
        StoredPasswords(config()).encrypted(CONFIGS, per_broker=True)
    assert "canary" not in str(failure.value)
    assert StoredPasswords(config()).encrypted({"max.connections": "7"}, per_broker=True) == {"max.connections": "7"}


def test_passwords_belong_to_one_broker():
    with pytest.raises(InvalidRequest, match="name a broker"):
        StoredPasswords(with_secret()).encrypted(CONFIGS, per_broker=False)


@pytest.mark.parametrize("other", [config(), with_secret("two")], ids=["no secret", "another secret"])
def test_what_cannot_be_decrypted_is_ignored(other, caplog):
    stored = StoredPasswords(with_secret()).encrypted(CONFIGS, per_broker=True)
    assert StoredPasswords(other).decrypted(stored) == {"max.connections": "7"}
    assert len(caplog.messages) == 2
    assert "is ignored" in caplog.text
    assert "canary" not in caplog.text


def test_a_value_that_is_not_encrypted_is_ignored_and_not_shown(caplog):
    assert StoredPasswords(with_secret()).decrypted(SECRETS) == {}
    assert "canary" not in caplog.text


def test_the_old_secret_is_replaced():
    stored = StoredPasswords(with_secret("one")).encrypted(CONFIGS, per_broker=True)
    passwords = StoredPasswords(with_secret("two", password_encoder_old_secret="one"))
    again = passwords.encrypted_again(stored)
    assert passwords.decrypted(again) == CONFIGS
    assert passwords.encrypted_again(again) is None
    assert StoredPasswords(with_secret("one")).encrypted_again(stored) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("password_encoder_iterations", "1000"),
        ("password_encoder_key_length", "100"),
        ("password_encoder_cipher_algorithm", "DES"),
        ("password_encoder_keyfactory_algorithm", "MD5"),
    ],
)
def test_parameters_are_checked_at_the_start(name, value):
    with pytest.raises(ValueError, match=name.replace("_", r"\.")):
        config(**{name: value})


class TestLoneBroker:
    @pytest.fixture
    def coordination(self):
        return LocalCoordination(TreeHost(ManualClock()))

    async def stored(self, coordination):
        data, _ = await coordination.get(broker_config_path(0))
        return data

    async def test_the_tree_has_no_plain_password_and_a_restart_reads_it(self, coordination):
        await coordination.create("/config/brokers", b"", make_parents=True)
        first = with_secret()
        await LoneDynamicConfigs(first, coordination).store("0", CONFIGS)
        assert first.str(JAAS) == "canary-2"
        data = await self.stored(coordination)
        assert b"canary" not in data
        assert PasswordEncoder("one").decode(json.loads(data)["config"][JAAS]) == "canary-2"

        again = with_secret("two", password_encoder_old_secret="one")
        await LoneDynamicConfigs(again, coordination).load()
        assert again.str(JAAS) == "canary-2"
        data = await self.stored(coordination)
        assert PasswordEncoder("two").decode(json.loads(data)["config"][JAAS]) == "canary-2"

    async def test_without_a_secret_nothing_changes(self, coordination):
        await coordination.create("/config/brokers", b"", make_parents=True)
        broker = config()
        with pytest.raises(InvalidRequest, match="secret not configured"):
            await LoneDynamicConfigs(broker, coordination).store("0", CONFIGS)
        assert broker.dynamic_broker == {}
        assert await coordination.exists(broker_config_path(0)) is None
