# Functions for scripts that run Larder, to be sourced. `name` is the script's name in messages, `logs` a directory for the output of
# processes.

say() { printf '%s\n' "$*"; }
fail() { printf '%s: %s\n' "$name" "$*" >&2; exit 1; }

is_used() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# free_ports VARIABLE...: sets each to a free port, below the ephemeral ports of the system, so that no other process is assigned one
# meanwhile.
free_ports() {
    local variable port chosen=" "
    for variable in "$@"; do
        while port=$((20000 + RANDOM % 12000)); [[ $chosen == *" $port "* ]] || is_used "$port"; do :; done
        chosen+="$port "
        printf -v "$variable" %s "$port"
    done
}

build() {
    if [[ -n ${LARDER:-} ]]; then
        binary=$LARDER
        return
    fi
    say "building (the first time takes some minutes)"
    cargo build --quiet --profile fast --package larder
    local target
    target=$(cargo metadata --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
    binary=$target/fast/larder
}

pids=()
tail_pid=
stop() {
    trap - EXIT INT TERM
    local pid
    for pid in "${pids[@]}" $tail_pid; do
        kill "$pid" 2>/dev/null || true
    done
    wait 2>/dev/null || true
    rm -rf "$logs"
}

# start NAME COMMAND...: starts a process with its output in a file, which is shown if it exits too early.
start() {
    local log=$1
    shift
    "$@" >"$logs/$log" 2>&1 &
    pids+=($!)
}

show_logs() {
    local file
    for file in "$logs"/*; do
        if [[ -s $file ]]; then
            { say "--- ${file##*/}"; tail -n 20 "$file"; } >&2
        fi
    done
}

# Requests URL until it answers; fails if one of the processes has exited.
wait_for() {
    local turn pid
    for turn in {1..30}; do
        curl --silent --fail --output /dev/null --retry 1 --retry-connrefused --retry-delay 1 "$1" && return
        for pid in "${pids[@]}"; do
            kill -0 "$pid" 2>/dev/null || { show_logs; fail "a process ended before all were ready"; }
        done
    done
    show_logs
    fail "no answer from $1"
}

# wait_for_metric URL PATTERN: waits until a line of the metrics matches.
wait_for_metric() {
    local end=$((SECONDS + 30))
    until curl --silent "$1" | grep -qE "$2"; do
        if ((SECONDS >= end)); then
            show_logs
            fail "$1 does not say $2"
        fi
    done
}

# expect NAME ANSWER PATTERN...: each pattern must match a line of the response.
expect() {
    local line=$1 answer=$2 pattern
    shift 2
    for pattern in "$@"; do
        if ! grep -qiE "$pattern" <<<"$answer"; then
            say "$answer" >&2
            show_logs
            fail "line $line: expected $pattern"
        fi
    done
    say "$name-check: line $line: ok"
}

