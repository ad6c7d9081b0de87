# Confluent's Java client and Avro serializers on `headrace registry`; part of script/interop. Maven Central has no
# io.confluent, but a jar of Apache Pinot with version 7.9.5 of both, unchanged, and the Avro and the Kafka client that they
# need. It has no serializers of JSON Schema and Protobuf.

confluent_jar=$PWD/.cache/confluent-java

fetch_registry() {
    if [ ! -d "$confluent_jar" ]; then
        echo "fetching Confluent's Java serializers by Maven ..."
        mvn -q dependency:copy -Dartifact=org.apache.pinot:pinot-confluent-avro:1.5.0:jar:shaded \
            -DoutputDirectory="$work/confluent"
        mkdir -p .cache
        mv "$work/confluent" "$confluent_jar"
    fi
    rm -rf .cache/interop/registry-classes
    javac -Xlint:all,-processing,-classfile -Werror -d .cache/interop/registry-classes -cp "$confluent_jar/*" \
        interop/java/Checks.java interop/registry/*.java
}

registry_checks() {
    program registry 300 .venv/bin/python interop/registry/checks.py "$confluent_jar/*:$PWD/.cache/interop/registry-classes"
}
