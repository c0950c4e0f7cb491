#!/bin/bash
# Stands for one of the programs, which is in $PROGRAMS. A server is started in the background: this
# ends when it serves, and its process id is in $SERVERS.
name=${0##*/}
serves=
case $name:${1-} in
forerunner:up | forerunner-scheduler:-* | forerunner-worker:-* | forerunner-scheduler: | forerunner-worker:) serves=1 ;;
esac
for argument; do
	case $argument in --help | --print-config) serves= ;; esac
done
if [ -z "$serves" ]; then
	exec "$PROGRAMS/$name" "$@"
fi
if compgen -G "$SERVERS/$name-*" >/dev/null; then
	export FORERUNNER_HTTP=127.0.0.1:0 # as if on another machine
fi
folder=$(mktemp -d "$SERVERS/$name-XXXXXX")
FORERUNNER_DATA=${FORERUNNER_DATA-$folder/data} "$PROGRAMS/$name" "$@" >"$folder/log" 2>&1 &
echo $! >"$folder/pid"
until grep -qE 'serving on|The farm is up|worker is ready|waiting for the lease' "$folder/log"; do
	if ! kill -0 $! 2>/dev/null; then
		echo "$name $* ended:" >&2
		cat "$folder/log" >&2
		exit 1
	fi
	sleep 0.02
done
