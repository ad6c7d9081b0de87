# A secured broker and the clients of other projects: every protocol, mechanism and kind of key store; part of
# script/interop. Apache's own tools create the users and the ACLs. Then the ACL matrix compares Headrace with Apache Kafka.

build_security() {
    (cd interop/security/go && go build -o ../../../.cache/interop/go-security .)
    mkdir -p .cache/interop/node-security
    cp interop/security/node/* .cache/interop/node-security
    (cd .cache/interop/node-security && npm install --silent --no-audit --no-fund --no-package-lock)
}

security_checks() { # [apache]: on Apache Kafka, to see that a failure is not the checks' own
    local secured=$work/security
    if [ "${1:-}" = apache ]; then start_secured_apache; else start_secured_headrace; fi
    check 'security: kafka-configs creates users for SCRAM' scram_users
    check 'security: kafka-acls adds and lists rules' acl_rules
    kcat_checks
    program 'security: java' 300 java -Xmx512m -XX:+UseSerialGC -cp "$jars/*:$classes" interop.Main security "$secured"
    program 'security: ours' 240 .venv/bin/python interop/clients/secured.py "$secured"
    program 'security: go' 240 .cache/interop/go-security "$secured/endpoints.json"
    program 'security: node' 240 node .cache/interop/node-security/checks.js "$secured/endpoints.json"
    check 'security: the perf tools over SASL_SSL' perf_tools
    check 'security: kafka-delegation-tokens, and a login by token' delegation_tokens
    check 'security: kafka-acls removes rules' acl_removal
    check 'security: kafka-configs removes a user' scram_removal
    check 'security: kafka-configs replaces a key store' key_store_replacement "${1:-}"
    check 'security: the broker stops cleanly' stop_broker secured
    if [ "${1:-}" != apache ]; then
        check 'security: names of certificates, and rules for them, as Java has them' \
            .venv/bin/python interop/security/names_like_java.py
        PYTHONPATH=interop program 'security: the ACL matrix' 400 .venv/bin/python -m acls.matrix live
        PYTHONPATH=interop program 'security: the ACL matrix in a cluster' 400 \
            .venv/bin/python -m acls.matrix member tests/broker/authorization/kafka_acl_facts.json
    fi
}

start_secured_headrace() {
    local tries
    secured_address=$(.venv/bin/python interop/security/files.py "$secured")
    .venv/bin/headrace start --data "$secured/data" --config "$secured/server.properties" --log-level warning \
        >"$work/secured.ready" 2>"$work/secured.log" &
    echo $! >"$work/secured.pid"
    for ((tries = 0; tries < 300; tries++)); do
        if grep -qs '^ready ' "$work/secured.ready"; then return 0; fi
        sleep 0.1
    done
    echo "the secured headrace did not start:" >&2
    tail -n 5 "$work/secured.log" >&2
    return 1
}

start_secured_apache() {
    local tries
    secured_address=$(.venv/bin/python interop/security/files.py "$secured" apache)
    java_small kafka.tools.StorageTool format -t headrace-interop-00000 -c "$secured/server.properties" >"$work/secured.log"
    java -Xmx512m -XX:+UseSerialGC -cp "$jars/*" kafka.Kafka "$secured/server.properties" >>"$work/secured.log" 2>&1 &
    echo $! >"$work/secured.pid"
    for ((tries = 0; tries < 20; tries++)); do
        if tool ClusterTool cluster-id --bootstrap-server "$secured_address" --config "$secured/admin.properties" \
            >/dev/null 2>&1; then return 0; fi
    done
    tail -n 5 "$work/secured.log" >&2
    return 1
}

as_admin() { # TOOL ARGUMENT...
    local class=$1
    shift
    tool "$class" --bootstrap-server "$secured_address" --command-config "$secured/admin.properties" "$@"
}

configs_as_admin() {
    java_small kafka.admin.ConfigCommand --bootstrap-server "$secured_address" --command-config "$secured/admin.properties" "$@"
}

describe_users() { configs_as_admin --describe --entity-type users; }

scram_users() {
    # Kafka changes one mechanism of a user per request.
    configs_as_admin --alter --entity-type users --entity-name alice \
        --add-config 'SCRAM-SHA-256=[iterations=4096,password=alice-secret]'
    configs_as_admin --alter --entity-type users --entity-name alice --add-config 'SCRAM-SHA-512=[password=alice-secret]'
    configs_as_admin --alter --entity-type users --entity-name bob --add-config 'SCRAM-SHA-256=[password=bob-secret]'
    expect "SCRAM credential configs for user-principal 'alice' are .*SCRAM-SHA-512=iterations=4096" describe_users
    expect 'SCRAM-SHA-256=iterations=4096' describe_users
    lacks 'alice-secret' describe_users
}

acl_rules() {
    local user
    for user in alice 'C=DE,O=Acme,CN=carol'; do
        as_admin AclCommand --add --allow-principal "User:$user" --producer --consumer --group secure- --topic secure- \
            --resource-pattern-type prefixed --idempotent
    done
    as_admin AclCommand --add --allow-principal User:ANONYMOUS --producer --consumer --group open- --topic open- \
        --resource-pattern-type prefixed --idempotent
    as_admin AclCommand --add --deny-principal User:alice --topic secure-denied --operation Write
    expect 'principal=User:C=DE,O=Acme,CN=carol, host=\*, operation=WRITE, permissionType=ALLOW' as_admin AclCommand --list
    expect 'ResourcePattern\(resourceType=TOPIC, name=secure-denied, patternType=LITERAL' \
        as_admin AclCommand --list --topic secure-denied
    expect 'operation=DESCRIBE' as_admin AclCommand --list --topic secure-x --resource-pattern-type match --principal User:alice
}

acl_removal() {
    as_admin AclCommand --remove --force --deny-principal User:alice --topic secure-denied --operation Write
    lacks 'DENY' as_admin AclCommand --list
    expect 'principal=User:alice, host=\*, operation=WRITE' as_admin AclCommand --list
    as_admin AclCommand --remove --force --topic secure- --resource-pattern-type prefixed
    lacks 'resourceType=TOPIC, name=secure-' as_admin AclCommand --list
}

scram_removal() {
    configs_as_admin --alter --entity-type users --entity-name bob --delete-config SCRAM-SHA-256
    lacks "'bob'" describe_users
}

served_certificate() { # ADDRESS
    .venv/bin/python -c 'import ssl, sys; print(ssl.get_server_certificate(tuple(sys.argv[1].split(":"))), end="")' "$1"
}

key_store_replacement() { # [apache]
    local address id=0 tries
    if [ "$1" = apache ]; then id=1; fi
    address=$(sed -n 's/^bootstrap.servers=//p' "$secured/ssl-jks.properties")
    configs_as_admin --alter --entity-type brokers --entity-name "$id" \
        --add-config "listener.name.jks.ssl.keystore.location=$secured/renewed.jks"
    for ((tries = 0; tries < 50; tries++)); do # Apache Kafka answers before it uses the new store
        if [ "$(served_certificate "$address" | tr -d '\n')" = "$(sed '/END CERT/q' "$secured/renewed.crt" | tr -d '\n')" ]; then
            return 0
        fi
        sleep 0.1
    done
    echo 'the listener still has its old certificate'
    return 1
}

perf_tools() {
    local properties=$secured/sasl_ssl-scram-sha-512.properties
    tool ProducerPerformance --topic secure-perf --num-records 20000 --record-size 100 --throughput -1 \
        --bootstrap-server "$(sed -n 's/^bootstrap.servers=//p' "$properties")" --command-config "$properties"
    expect '^[^ ].*, 20000, ' tool ConsumerPerformance --topic secure-perf --num-records 20000 --group secure-perf \
        --bootstrap-server "$(sed -n 's/^bootstrap.servers=//p' "$properties")" --command-config "$properties" --timeout 20000
}

delegation_tokens() {
    local login=$secured/sasl_plaintext-scram-sha-256.properties id hmac
    tool DelegationTokenCommand --bootstrap-server "$secured_address" --command-config "$login" --create \
        --max-life-time-period -1 --renewer-principal User:bob >"$work/token.out"
    id=$(awk 'NF > 5 && /User:alice/ { print $1 }' "$work/token.out")
    hmac=$(awk 'NF > 5 && /User:alice/ { print $2 }' "$work/token.out")
    same 'the length of the id' "${#id}" 22
    expect "$id" tool DelegationTokenCommand --bootstrap-server "$secured_address" --command-config "$login" --describe \
        --owner-principal User:alice
    sed "s|^sasl.jaas.config=.*|sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"$id\" password=\"$hmac\" tokenauth=true;|" \
        "$login" >"$work/token.properties"
    echo by-token | tool ConsoleProducer --topic secure-token --bootstrap-server "$secured_address" --command-config "$work/token.properties"
    expect '^by-token$' tool consumer.ConsoleConsumer --topic secure-token --from-beginning --max-messages 1 --timeout-ms 15000 \
        --group secure-token --bootstrap-server "$secured_address" --command-config "$work/token.properties"
    tool DelegationTokenCommand --bootstrap-server "$secured_address" --command-config "$login" --renew --hmac "$hmac" \
        --renew-time-period 3600000
    tool DelegationTokenCommand --bootstrap-server "$secured_address" --command-config "$login" --expire --hmac "$hmac" \
        --expiry-time-period -1
    lacks "$id" tool DelegationTokenCommand --bootstrap-server "$secured_address" --command-config "$login" --describe \
        --owner-principal User:alice
}

# -- kcat

kcat_checks() {
    local name
    if ! command -v kcat >/dev/null; then
        report skipped 'security: kcat' 'kcat is not installed'
        return
    fi
    for name in $(.venv/bin/python -c 'import json, sys; print(*(e["name"] for e in json.load(open(sys.argv[1]))))' "$secured/endpoints.json"); do
        if [[ $name == *scram* ]] && kcat -V | grep -qE 'librdkafka (0\.|1\.|2\.[0-5]\.|2\.6\.0)'; then
            report skipped "security: kcat $name" 'a librdkafka before 2.6.1 sends its nonce twice, which Apache Kafka refuses too'
        else
            check "security: kcat $name" kcat_records "$name"
        fi
    done
    check 'security: kcat is refused with a wrong password' kcat_refused
}

kcat_at() { # NAME ARGUMENT...; librdkafka has Kafka's names for most settings
    local name=$1 settings=()
    shift
    mapfile -t settings < <(.venv/bin/python - "$secured" "$name" <<-'END'
		import json, sys
		folder, name = sys.argv[1:]
		(at,) = (each for each in json.load(open(f"{folder}/endpoints.json")) if each["name"] == name)
		found = {"bootstrap.servers": at["address"], "security.protocol": at["protocol"], "ssl.ca.location": at.get("ca"),
		         "ssl.certificate.location": at.get("certificate"), "ssl.key.location": at.get("key"),
		         "sasl.mechanisms": at.get("mechanism"), "sasl.username": at.get("user") if "password" in at else None,
		         "sasl.password": at.get("password")}
		if "token" in at:
		    found.update({"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=" + at["user"]})
		for setting, value in found.items():
		    if value:
		        print("-X"), print(f"{setting}={value}")
	END
    )
    bounded kcat "${settings[@]}" "$@"
}

kcat_records() { # NAME
    local topic=secure-kcat-$1
    if [[ $1 == ssl-p* || $1 == ssl-j* ]]; then topic=open-kcat-$1; fi
    seq 1 10 | kcat_at "$1" -P -t "$topic"
    same 'what kcat read' "$(kcat_at "$1" -C -t "$topic" -o beginning -c 10 -q | tr '\n' ' ')" '1 2 3 4 5 6 7 8 9 10 '
    fails kcat_at "$1" -P -t forbidden -X message.timeout.ms=3000 <<<denied
}

kcat_refused() {
    fails kcat_at sasl_ssl-plain -X sasl.password=wrong -X message.timeout.ms=3000 -L -m 3
}
