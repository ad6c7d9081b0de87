# PostgreSQL's JDBC driver reads a view while its columns change; part of script/interop. Needs a PostgreSQL server.

jdbc_driver=$PWD/.cache/postgresql-jdbc

fetch_jdbc() {
    if [ ! -d "$jdbc_driver" ]; then
        echo "fetching PostgreSQL's JDBC driver by Maven ..."
        mvn -q dependency:copy -Dartifact=org.postgresql:postgresql:42.7.4 -DoutputDirectory="$work/jdbc"
        mkdir -p .cache
        mv "$work/jdbc" "$jdbc_driver"
    fi
    rm -rf .cache/interop/jdbc-classes
    javac -Xlint:all,-processing -Werror -d .cache/interop/jdbc-classes interop/jdbc/*.java
}

jdbc_checks() {
    program jdbc 180 .venv/bin/python interop/jdbc/checks.py "$jdbc_driver/*:$PWD/.cache/interop/jdbc-classes"
}
