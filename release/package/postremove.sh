#!/bin/sh
# After the files are gone. What a farm has stored stays in /var/lib until the package is purged, as dpkg calls it; rpm
# leaves it to the administrator. The user stays: files elsewhere may be his.
set -e

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
if [ "$1" = purge ]; then
	rm -rf /var/lib/forerunner-scheduler /var/lib/forerunner-worker
	rmdir --ignore-fail-on-non-empty /etc/forerunner 2>/dev/null || true
fi
