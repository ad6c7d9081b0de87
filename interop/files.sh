# Files: Apache's dump tool on ours, ours on Apache's, and a Headrace that takes over an Apache broker's folder.
#
# Both tools print the same lines for the same files, so the comparison is of all of their output.

list_files() { # FOLDER SUFFIX...: of the topics that tests made, joined by commas; Apache's own topics begin with __
    local folder=$1 suffix
    shift
    for suffix in "$@"; do
        find "$folder" -mindepth 2 -maxdepth 2 -name "*.$suffix" ! -path "$folder/__*" ! -path "$folder/.*"
    done | sort | paste -sd,
}

dumps_agree() { # FOLDER
    local files
    files=$(list_files "$1" log index timeindex snapshot txnindex)
    tool DumpLogSegments --print-data-log --files "$files" >"$work/apache.dump"
    headrace dump-log --print-data-log --files "$files" >"$work/ours.dump"
    diff --text "$work/apache.dump" "$work/ours.dump"
    lacks 'isvalid: false' cat "$work/ours.dump"
}

indexes_are_sane() { # FOLDER
    local files count
    files=$(list_files "$1" index timeindex)
    count=$(tr ',' '\n' <<<"$files" | grep -c .)
    tool DumpLogSegments --index-sanity-check --files "$files" >"$work/sane.out" 2>&1
    same 'indexes that Apache finds sane' "$(grep -cE 'passed sanity check|is empty' "$work/sane.out")" "$count"
    headrace dump-log --index-sanity-check --files "$files"
    tool DumpLogSegments --verify-index-only --files "$files" >"$work/verify.out" 2>&1
    # Beside the names of the files only complaints are printed.
    lacks . sed -E '/^Dumping |is empty\.$|SLF4J/d' "$work/verify.out"
    headrace dump-log --verify-index-only --files "$files"
}

counts_agree() { # FOLDER TOPIC; the offsets that the broker told are in $work/TOPIC.offsets as TOPIC:PARTITION:END
    local partition end folder
    while IFS=: read -r _ partition end; do
        folder=$1/$2-$partition
        headrace dump-log --deep-iteration --json --files "$(find "$folder" -name '*.log' | sort | paste -sd,)" |
            grep '"type": "record"' >"$work/records.json"
        same "records of $2-$partition" "$(grep -c . "$work/records.json")" "$end"
        expect "\"offset\": $((end - 1))," tail -n 1 "$work/records.json"
    done <"$work/$2.offsets"
}

commit_offsets() { # TOPIC; by a group of the same name, and what it has then is kept in $work/TOPIC.committed
    tool consumer.group.ConsumerGroupCommand --bootstrap-server "$address" --group "$1" --topic "$1" \
        --reset-offsets --to-offset 7 --execute
    committed_offsets "$1" >"$work/$1.committed"
    expect "^$1 $1 0 7\$" cat "$work/$1.committed"
}

committed_offsets() { # TOPIC; lines of group, topic, partition and offset
    tool consumer.group.ConsumerGroupCommand --bootstrap-server "$address" --describe --group "$1" --offsets |
        awk -v group="$1" '$1 == group { print $1, $2, $3, $4 }' | sort
}

decoders_agree() { # FOLDER TOPIC DECODER FILE; what Apache's tool prints is left in FILE
    local files
    files=$(find "$1" -path "$1/$2-*" -name '*.log' -size +0 | sort | paste -sd,)
    tool DumpLogSegments "$3" --files "$files" >"$4"
    headrace dump-log "$3" --files "$files" | diff --text "$4" -
}

offsets_are_readable() { # FOLDER TOPIC
    decoders_agree "$1" __consumer_offsets --offsets-decoder "$work/offsets.dump"
    expect "\"group\":\"$2\",\"topic\":\"$2\",\"partition\":0.*\"offset\":7," cat "$work/offsets.dump"
}

transactions_are_readable() { # FOLDER ID; there is one of it that was aborted, and an open one
    decoders_agree "$1" __transaction_state --transaction-log-decoder "$work/transactions.dump"
    expect "\"transactionalId\":\"$2\"" cat "$work/transactions.dump"
    local state
    for state in 1 4 5; do # Ongoing, CompleteCommit, CompleteAbort
        expect "\"transactionalId\":\"$2\".*\"transactionStatus\":$state," cat "$work/transactions.dump"
    done
}

transaction_of_apache() { # the transactional id of its topic, which the folder has as it was
    tool TransactionsCommand --bootstrap-server "$address" describe --transactional-id interop >"$work/transaction.out"
    expect 'CompleteCommit' cat "$work/transaction.out"
}

write_ours() {
    java_small interop.Main fill "$address" ours 50000 600000
    tool GetOffsetShell --bootstrap-server "$address" --topic ours >"$work/ours.offsets"
    commit_offsets ours
    java_small interop.Main leave-open "$address" ours-transacted
}

write_apaches() {
    java_small interop.Main fill "$address" apaches 1048576 300 # smaller segments it does not allow: they roll by time
    java_small interop.Main fill-transactions "$address" apaches
    tool GetOffsetShell --bootstrap-server "$address" --topic apaches >"$work/apaches.offsets"
    commit_offsets apaches
    java_small interop.Main digest "$address" apaches >"$work/apaches.digest"
    same 'partitions and ways of reading' "$(grep -c . "$work/apaches.digest")" 4
}

serves_the_same() { # the Headrace at $address has the topic that Apache wrote, and goes on with it
    expect '^apaches$' tool TopicCommand --bootstrap-server "$address" --list
    lacks '__cluster_metadata' tool TopicCommand --bootstrap-server "$address" --list
    tool GetOffsetShell --bootstrap-server "$address" --topic apaches >"$work/adopted.offsets"
    diff "$work/apaches.offsets" "$work/adopted.offsets"
    java_small interop.Main digest "$address" apaches >"$work/adopted.digest"
    diff "$work/apaches.digest" "$work/adopted.digest"
    committed_offsets apaches >"$work/adopted.committed"
    diff "$work/apaches.committed" "$work/adopted.committed"
    transaction_of_apache
    local before after
    before=$(awk -F: '{ sum += $3 } END { print sum }' "$work/adopted.offsets")
    seq 10 | tool ConsoleProducer --bootstrap-server "$address" --topic apaches
    after=$(tool GetOffsetShell --bootstrap-server "$address" --topic apaches | awk -F: '{ sum += $3 } END { print sum }')
    same 'end after ten more' "$after" "$((before + 10))"
}

adopts() { # NAME FOLDER
    start_headrace "$1" "$2" -o broker.id=1
    serves_the_same
    stop_broker "$1"
    headrace dump-log --deep-iteration --files "$(list_files "$2" log index timeindex snapshot)" >/dev/null
}

files_of_ours() { # FOLDER of a Headrace that was stopped
    check "files of ours: Apache's dump tool and ours print the same" dumps_agree "$1"
    check "files of ours: Apache's tool and ours find the indexes right" indexes_are_sane "$1"
    check "files of ours: Apache's dump tool and ours read the committed offsets" offsets_are_readable "$1" ours
    check "files of ours: Apache's dump tool and ours read the states of transactions" transactions_are_readable "$1" ours-transacted
    check 'files of ours: records and offsets are as many as the broker told' counts_agree "$1" ours
}

files_of_apache() {
    local folder=$work/apache-data
    if ! start_apache apache "$folder" 2>"$work/start.err"; then
        report FAILED 'an Apache broker starts' "$(tail -n 3 "$work/start.err" | paste -sd' ')"
        return
    fi
    check 'files of Apache: written in every codec, with transactions' write_apaches
    cp -r "$folder" "$work/apache-torn" # as a kill would leave it: indexes at full length, no snapshot, no mark
    check 'files of Apache: it stops cleanly' stop_broker apache
    cp -r "$folder" "$work/apache-copy"
    check "files of Apache: Apache's dump tool and ours print the same" dumps_agree "$folder"
    check "files of Apache: Apache's tool and ours find the indexes right" indexes_are_sane "$folder"
    check 'files of Apache: a Headrace takes the folder over and serves the same records' adopts adopted "$work/apache-copy"
    check 'files of Apache: so it does after a kill' adopts torn "$work/apache-torn"
}
