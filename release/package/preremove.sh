#!/bin/sh
# Before the files go. dpkg says "remove" or "upgrade", rpm how many versions are left.
set -e

case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now forerunner-scheduler.service forerunner-worker.service || true
	fi
	;;
esac
