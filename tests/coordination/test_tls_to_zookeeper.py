"""TLS between a broker's client and ZooKeeper: our server and a real one, by certificates and by Kafka's settings."""

import asyncio
import re
import uuid

import pytest
from secure_servers import Certificates, our_server, real_server

from headrace.coordination.client.client_security import ClientSecurity
from headrace.coordination.client.zookeeper_client import ZookeeperCoordination
from headrace.coordination.interface import ConnectionLostError, Create, EventType, NoAuthError
from headrace.testing.broker_process import BrokerProcess, StartFailed
from headrace.testing.zookeeper_process import ZookeeperMissing
from headrace.tools.zookeeper_shell import command as zookeeper_shell

pytestmark = pytest.mark.xdist_group("zookeeper")

PATIENCE_S = 30


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def our_address(tmp_path_factory, certificates):
    with our_server(tmp_path_factory.mktemp("ours"), certificates) as address:
        yield address


@pytest.fixture(scope="module")
def real_address(tmp_path_factory, certificates):
    try:
        server = real_server(tmp_path_factory.mktemp("real"), certificates)
        address = server.__enter__()
    except ZookeeperMissing as error:
        pytest.skip(str(error))
    yield address
    server.__exit__(None, None, None)


@pytest.fixture(params=["our", "real"])
def address(request):
    return request.getfixturevalue(f"{request.param}_address")


async def connect(address, settings, **options):
    security = ClientSecurity.from_settings(settings)
    return await ZookeeperCoordination.connect(address, security=security, **options)


async def test_requests_and_watches(address, certificates):
    chroot = f"/tls-{uuid.uuid4().hex}"
    client = await connect(address + chroot, certificates.client_settings())
    events: asyncio.Queue = asyncio.Queue()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await client.create("/a", b"x" * 200_000)
            data, _ = await client.get("/a", watch=events.put_nowait)
            assert data == b"x" * 200_000
            await asyncio.gather(*(client.create(f"/a/{index}", b"y" * 500) for index in range(300)))
            found = await asyncio.gather(*(client.get(f"/a/{index}") for index in range(300)))
            assert {len(data) for data, _ in found} == {500}
            await client.multi([Create("/b"), Create("/c")])
            await client.set("/a", b"")
            assert (await events.get()).type is EventType.CHANGED
    finally:
        await client.close()


@pytest.mark.parametrize(
    ("name", "others", "said"),
    [
        (None, {}, ""),
        ("stranger", {}, ""),
        ("client", {"truststore_location": "other-ca"}, "certificate verify failed"),
    ],
    ids=["no certificate", "of a stranger", "another authority"],
)
async def test_both_sides_check_certificates(address, certificates, name, others, said):
    others = {key: certificates.path(value) for key, value in others.items()}
    settings = certificates.client_settings(name, **others)
    with pytest.raises(ConnectionLostError, match=f"no ZooKeeper at {address} answered.*{said}"):
        await connect(address, settings, connection_timeout_ms=3_000 if said else 500)


async def test_the_certificate_must_name_the_host(address, certificates):
    by_name = address.replace("127.0.0.1", "localhost")
    with pytest.raises(ConnectionLostError, match=r"(?i)(hostname|IP address) mismatch"):
        await connect(by_name, certificates.client_settings(), connection_timeout_ms=3_000)
    settings = certificates.client_settings(endpoint_identification_algorithm="")
    await (await connect(by_name, settings)).close()


async def test_a_plain_client_gets_no_answer(address):
    with pytest.raises(ConnectionLostError):
        await connect(address, {}, connection_timeout_ms=500)


async def test_the_subject_of_a_certificate_is_an_identity(address, certificates, tmp_path, capsys):
    chroot = f"/x509-{uuid.uuid4().hex}"
    settings = {**certificates.client_settings(), "zookeeper.set.acl": "true"}
    client = await connect(address + chroot, settings)
    try:
        await client.create("/config/users", make_parents=True)
    finally:
        await client.close()
    file = tmp_path / "tls.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in certificates.client_settings().items()))
    arguments = ["-zk-tls-config-file", str(file), address + chroot]
    assert await asyncio.to_thread(zookeeper_shell.main, [*arguments, "getAcl", "/config/users"]) == 0
    shown = capsys.readouterr().out
    # As Java writes it: the attributes in reverse order, with escapes.
    assert re.fullmatch(r"'x509,'CN=client,OU=.*,O=Acme\\, Ltd\n: cdrwa\n", shown), shown


def test_a_broker_joins_by_tls_and_protects_its_znodes(our_address, certificates, tmp_path):
    settings = {**certificates.client_settings(), "zookeeper.set.acl": "true"}
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    with BrokerProcess(tmp_path, "--zookeeper", f"{our_address}/broker", *options):
        asyncio.run(_read_as_another(our_address, certificates.client_settings("other")))
    with pytest.raises(StartFailed, match=r"^headrace: TLS to ZooKeeper \(zookeeper\.ssl\.\*\): .*no-such\.pem.*\n$"):
        BrokerProcess(
            tmp_path / "other", "--zookeeper", our_address, "-o", "zookeeper.ssl.client.enable=true",
            "-o", "zookeeper.ssl.truststore.location=/no-such.pem",
        )  # fmt: skip


async def _read_as_another(address, settings):
    client = await connect(f"{address}/broker", settings)
    try:
        (broker_id,) = await client.children("/brokers/ids")
        assert b"endpoints" in (await client.get(f"/brokers/ids/{broker_id}"))[0]
        for path in ("/config/users", "/config/brokers"):
            with pytest.raises(NoAuthError):
                await client.get(path)
        with pytest.raises(NoAuthError):
            await client.set("/brokers/topics", b"")
        with pytest.raises(NoAuthError):
            await client.create("/brokers/topics/orders")
        with pytest.raises(NoAuthError):
            await client.create("/new")
        await client.create("/consumers/open")
    finally:
        await client.close()
