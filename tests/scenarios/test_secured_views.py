"""Views over a log that asks for TLS and a login. The password comes from the environment and from a file."""

import json
import os
import subprocess
import sys

import pytest
from deltalake import DeltaTable

from certificates import certificate
from headrace import Broker, Producer

SECRET = "hunter2"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
MADE = certificate()
PROJECT = """\
[log]
bootstrap = "{bootstrap}"

[log.options]
security.protocol = "SASL_SSL"
sasl.mechanism = "PLAIN"
sasl.username = "${{file:user.txt}}"
sasl.password = "${{env:VIEWS_PASSWORD}}"
ssl.truststore.type = "PEM"
ssl.truststore.location = "{trusted}"

[spark]
conf = {{ "spark.ui.enabled" = "false", "spark.sql.shuffle.partitions" = "2" }}
memory = "700m"
"""
VIEW = """\
topics = ["clicks"]
architecture = "{architecture}"
query = "pages.sql"

[decode]
format = "json"
schema = "page STRING"

[export]
path = "exports/{architecture}"
"""


def headrace(folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", "from headrace.tools.main import main; main()", *arguments, "--project", str(folder)],
        capture_output=True, text=True, timeout=140, env={**os.environ, "VIEWS_PASSWORD": SECRET},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.timeout(300)
@pytest.mark.xdist_group("views-0")
def test_both_architectures(tmp_path):
    files = MADE.write(tmp_path)
    config = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "delegation.token.secret.key": "the workers of Spark log in with tokens",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} user_alice="{SECRET}";',
        **files,
    }
    folder = tmp_path / "shop"
    (folder / "views").mkdir(parents=True)
    (folder / "user.txt").write_text("alice\n")
    (folder / "views" / "pages.sql").write_text("SELECT page, count(*) AS n FROM events GROUP BY page")
    for architecture in ("lambda", "kappa"):
        (folder / "views" / f"{architecture}_pages.toml").write_text(VIEW.format(architecture=architecture))
    with Broker(config=config) as broker:
        text = PROJECT.format(bootstrap=broker.bootstrap_servers, trusted=files["ssl.truststore.location"])
        (folder / "headrace.toml").write_text(text)
        client = {"bootstrap.servers": broker.bootstrap_servers, "security.protocol": "SASL_SSL"}
        login = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": SECRET}
        with Producer(config={**client, **login, **MADE.trust_store()}) as producer:
            for page in ("a", "b", "a"):
                producer.send("clicks", json.dumps({"page": page}).encode())
        commands = (["apply"], ["run", "--once"], ["status", "--json"], ["status"])
        said = [headrace(folder, "views", *command) for command in commands]
        sql = "SELECT page, l.n, k.n FROM lambda_pages l JOIN kappa_pages k USING (page) ORDER BY page"
        said.append(headrace(folder, "query", sql, "--json"))
    assert json.loads(said[-1].stdout)["rows"] == [["a", 2, 2], ["b", 1, 1]]
    for architecture in ("lambda", "kappa"):
        rows = DeltaTable(folder / "exports" / architecture).to_pyarrow_table().sort_by("page").to_pylist()
        assert rows == [{"page": "a", "n": 2}, {"page": "b", "n": 1}]
        assert f"{architecture}_pages: exported to exports/{architecture} at" in said[-2].stderr
    assert not any(SECRET in one.stdout + one.stderr for one in said)
    left = [path for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert left == []
