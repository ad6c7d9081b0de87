# Spark, three ways; part of script/interop.
#
#   Spark's own Kafka connector (Spark 4.0.0, in an environment of its own) on a Headrace   interop/spark/connector.py
#   our source and sink on Apache Kafka                                                     their tests
#   a project of views on Apache Kafka, by its bootstrap address alone                      interop/spark/views
#
# The connector and its Spark are those of bench/pipeline.py, in .cache.

fetch_spark() { PYTHONPATH=bench .venv/bin/python -c 'import pipeline_sides; pipeline_sides.fetch_peer()'; }

spark_checks() {
    start_headrace spark "$work/spark" --log-level warning
    program spark 240 .cache/spark-4.0.0/bin/python interop/spark/connector.py "$address" \
        "$(PYTHONPATH=bench .venv/bin/python -c 'import pipeline_sides; print(pipeline_sides.connector_jars())')"
    check 'spark: the broker stops cleanly' stop_broker spark
    # Tests write records of 2023, which retention takes after half a minute.
    start_apache spark "$work/spark-apache" group.initial.rebalance.delay.ms=0 log.retention.ms=-1
    check 'spark: our source and sink on Apache Kafka' source_tests
    check 'spark: views over Apache Kafka' views_on_apache
    check 'spark: Apache Kafka stops cleanly' stop_broker spark
}

source_tests() {
    HEADRACE_TEST_KAFKA=$address timeout --kill-after=5 400 .venv/bin/pytest -n 0 -p no:cacheprovider \
        tests/pipeline/spark/test_source_*.py tests/pipeline/spark/test_sink*.py
}

views_on_apache() {
    local project=$work/views
    cp -r interop/spark/views "$project"
    sed -i "s/ADDRESS/$address/" "$project/headrace.toml"
    headrace topics --bootstrap-server "$address" --create --topic visits --partitions 3
    seq 600 | awk '{ print "{\"page\": \"p" $1 % 7 "\", \"ms\": " $1 "}" }' >"$work/visits"
    headrace console-producer --bootstrap-server "$address" --topic visits <"$work/visits"
    with_spark views apply --project "$project"
    with_spark views run --once --project "$project"
    local architecture
    for architecture in lambda kappa; do
        headrace query --project "$project" --csv "SELECT * FROM by_$architecture ORDER BY page" >"$work/answer.csv"
        same "$architecture" "$(cat "$work/answer.csv")" "$(expected_visits)"
    done
}

with_spark() { # a command of headrace that starts Spark
    timeout --kill-after=5 180 .venv/bin/headrace "$@"
}

expected_visits() {
    seq 600 | awk '{ page = $1 % 7; visits[page]++; longest[page] = $1 }
        END { print "page,visits,longest"; for (page = 0; page < 7; page++) print "p" page "," visits[page] "," longest[page] }'
}
