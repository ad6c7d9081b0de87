# Our command line tools beside Apache's, on the Headrace at $address: the same flags must give the same output.

everything_of_records() { # the properties that show all of a record but its epoch, which Apache's tool forgets
    local name
    for name in timestamp partition offset headers key; do echo "--formatter-property print.$name=true"; done
}

our_console() {
    tool TopicCommand $(at) --create --topic ours-console --partitions 2
    printf 'a:1,b:2\tkey1\tvalue1\n\tkey2\tNULL\n\tNULL\tvalue3\n' |
        headrace console-producer $(at) --topic ours-console --reader-property parse.key=true \
            --reader-property parse.headers=true --reader-property null.marker=NULL
    seq 100 | headrace console-producer $(at) --topic ours-console --compression-codec lz4 --request-required-acks 1
    local options="$(at) --topic ours-console --from-beginning --max-messages 103 $(everything_of_records)"
    tool consumer.ConsoleConsumer $options | sort >"$work/apache.console"
    headrace console-consumer $options | sort >"$work/ours.console"
    diff "$work/apache.console" "$work/ours.console"
    same records "$(grep -c . "$work/ours.console")" 103
}

our_lines() { # what our producer makes of lines is what Apache's makes of them
    local producer topic
    for topic in lines-apache lines-ours; do tool TopicCommand $(at) --create --topic $topic; done
    printf 'h:1\tk=v=w\ni\t=\nbad\n' >"$work/lines"
    local options="--reader-property parse.key=true --reader-property parse.headers=true --reader-property key.separator="
    options="$options= --reader-property ignore.error=true"
    tool ConsoleProducer $(at) --topic lines-apache $options <"$work/lines"
    headrace console-producer $(at) --topic lines-ours $options <"$work/lines"
    for topic in lines-apache lines-ours; do
        headrace console-consumer $(at) --topic $topic --from-beginning --timeout-ms 1000 \
            --formatter-property print.key=true --formatter-property print.headers=true >"$work/$topic"
    done
    diff "$work/lines-apache" "$work/lines-ours"
    same records "$(grep -c . "$work/lines-ours")" 3
}

our_formatters() {
    local options="$(at) --topic __consumer_offsets --from-beginning --timeout-ms 5000"
    local formatter=org.apache.kafka.tools.consumer.OffsetsMessageFormatter
    seq 5 | headrace console-producer $(at) --topic ours-offsets
    headrace console-consumer $(at) --topic ours-offsets --group ours-offsets --from-beginning --max-messages 5
    # Apache's tool puts no ends of lines between them.
    tool consumer.ConsoleConsumer $options --formatter $formatter | sed 's/}{"key"/}\n{"key"/g' | sort >"$work/apache.offsets"
    headrace console-consumer $options --formatter $formatter | sort >"$work/ours.offsets"
    diff <(grep -c . "$work/apache.offsets") <(grep -c . "$work/ours.offsets")
    diff <(grep . "$work/apache.offsets") <(grep . "$work/ours.offsets")
    expect '"group":"ours-offsets","topic":"ours-offsets","partition":0.*"offset":5' cat "$work/ours.offsets"
}

without_numbers() { sed -E 's/[0-9]+(\.[0-9]+)?/N/g' "$1"; }

our_perf_tests() {
    tool TopicCommand $(at) --create --topic ours-perf --partitions 2
    local options="$(at) --topic ours-perf --num-records 20000 --record-size 100 --throughput -1 --warmup-records 10"
    tool ProducerPerformance $options >"$work/apache.perf"
    headrace producer-perf-test $options >"$work/ours.perf"
    diff <(without_numbers "$work/apache.perf") <(without_numbers "$work/ours.perf")
    options="$(at) --topic ours-perf --num-records 40000"
    tool ConsumerPerformance $options >"$work/apache.perf"
    headrace consumer-perf-test $options >"$work/ours.perf"
    diff <(without_numbers "$work/apache.perf") <(without_numbers "$work/ours.perf")
    same columns "$(tail -n 1 "$work/ours.perf" | tr -cd , | wc -c)" 9
}

our_tools() {
    check 'our tools: console-producer and -consumer show what Apache shows' our_console
    check 'our tools: console-producer reads lines as Apache does' our_lines
    check 'our tools: formatters show what Apache shows' our_formatters
    check 'our tools: the perf tests say what Apache says' our_perf_tests
}
