#!/bin/sh
# Starts a training again for as long as that is worth a try.
#
#     ./supervise.sh perdure train ppo --env CartPole-v1 --run runs/x
#     PAUSE_S=60 nohup ./supervise.sh python train.py > train.log 2>&1 &
#
# Exit code 75 says that the run was told to stop and that its state is durable; 128 or more, that a signal killed the
# process (137: out of memory, perhaps). Any other code would come again: 0 is the end, 1 an error in a script, 3 another
# configuration, 6 a crash loop. SIGTERM and Ctrl-C are passed on; the supervisor then ends with the training's code.

child= stopped= interrupted=

pass_on() {
    stopped=yes interrupted=yes
    # As SIGTERM, for what a script starts in the background ignores Ctrl-C.
    [ -z "$child" ] || kill -s TERM "$child" 2> /dev/null
}

start() { # in the background: the shell would hear of no signal before a command in the foreground has ended
    "$@" &
    child=$!
    [ -z "$stopped" ] || { sleep 1 && pass_on; } # it came before the child was there
    interrupted=
    wait "$child"
    code=$?
    while [ -n "$interrupted" ]; do # by a signal: `wait` has told its number, not the child's code
        interrupted=
        wait "$child" 2> /dev/null
        again=$?
        [ "$again" -eq 127 ] || code=$again # 127: the first `wait` had told it after all
    done
    child=
}

trap pass_on TERM INT
trap 'interrupted=yes' USR1 USR2 # to a whole process group: they are the training's; `''` would make it ignore them
while :; do
    start "$@"
    result=$code
    [ -z "$stopped" ] || exit "$result"
    [ "$result" -eq 75 ] || [ "$result" -ge 128 ] || exit "$result"
    echo "supervise: ended with $result; again in ${PAUSE_S:-10} s" >&2
    slept=0
    while [ -z "$stopped" ] && [ "$slept" -lt "${PAUSE_S:-10}" ]; do # in the foreground a signal waits for a second at most
        sleep 1
        slept=$((slept + 1))
    done
    [ -z "$stopped" ] || exit "$result"
done
