"""Admin: client quotas are set, filtered, removed, and each entity has its own error."""

import pytest

from headrace import Admin, AsyncAdmin, Broker
from headrace.client.admin.quotas import ANY, DEFAULT, QuotaEntity
from headrace.client.errors import HeadraceError, NotAuthorized

ALICE, APP, OTHERS = QuotaEntity(user="alice"), QuotaEntity("alice", "app"), QuotaEntity(DEFAULT, DEFAULT)
ADDRESS = QuotaEntity(ip="127.0.0.1")
PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"


@pytest.fixture
async def admin():
    async with Broker() as broker, AsyncAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield admin


async def test_quotas_are_set_changed_and_removed(admin):
    done = await admin.alter_client_quotas({ALICE: {PRODUCE: 1000, CONSUME: 5}, OTHERS: {"request_percentage": 2.5}})
    assert done == {ALICE: None, OTHERS: None}
    assert await admin.describe_client_quotas() == {
        ALICE: {PRODUCE: 1000.0, CONSUME: 5.0},
        OTHERS: {"request_percentage": 2.5},
    }
    (await admin.alter_client_quotas({ALICE: {CONSUME: None, PRODUCE: 7}, OTHERS: {"request_percentage": None}})).all()
    assert await admin.describe_client_quotas() == {ALICE: {PRODUCE: 7.0}}


async def test_filters(admin):
    limits = {ALICE: 1.0, APP: 2.0, OTHERS: 3.0, QuotaEntity(client_id="app"): 4.0}
    (await admin.alter_client_quotas({entity: {PRODUCE: limit} for entity, limit in limits.items()})).all()
    (await admin.alter_client_quotas({ADDRESS: {"connection_creation_rate": 9}})).all()

    async def found(**wanted):
        return set(await admin.describe_client_quotas(**wanted))

    assert await found(user="alice") == {ALICE, APP}
    assert await found(user="alice", strict=True) == {ALICE}
    assert await found(user=ANY) == {ALICE, APP, OTHERS}
    assert await found(user=DEFAULT, client_id=DEFAULT) == {OTHERS}
    assert await found(client_id="app") == {APP, QuotaEntity(client_id="app")}
    assert await found(client_id="app", strict=True) == {QuotaEntity(client_id="app")}
    assert await found(ip=ANY) == {ADDRESS}
    assert await found(ip=DEFAULT) == set()
    assert len(await found()) == 5


async def test_each_entity_has_its_own_error(admin):
    bad = QuotaEntity(user="bob")
    done = await admin.alter_client_quotas({bad: {PRODUCE: -1}, ALICE: {PRODUCE: 1}, QuotaEntity(): {PRODUCE: 1}})
    assert done[ALICE] is None
    assert isinstance(done[bad], HeadraceError)
    assert "greater than 0" in str(done[bad])
    assert isinstance(done[QuotaEntity()], HeadraceError)
    assert set(await admin.describe_client_quotas()) == {ALICE}
    with pytest.raises(HeadraceError, match="combination"):
        await admin.describe_client_quotas(user=ANY, ip=ANY)


async def test_validate_only_changes_nothing(admin):
    done = await admin.alter_client_quotas({ALICE: {PRODUCE: 1}, APP: {"unknown": 1}}, validate_only=True)
    assert done[ALICE] is None
    assert "unknown" in str(done[APP])
    assert await admin.describe_client_quotas() == {}


def test_the_blocking_admin_and_rights():
    config = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:admin"}
    with Broker(config=config) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        with pytest.raises(NotAuthorized):
            admin.describe_client_quotas()
        done = admin.alter_client_quotas({ALICE: {PRODUCE: 1}})
        assert isinstance(done[ALICE], NotAuthorized)
