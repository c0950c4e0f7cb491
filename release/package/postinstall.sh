#!/bin/sh
# After the files are there, at the first installation and at each upgrade. Nothing is enabled: a machine is a
# scheduler, a worker or a client.
set -e

if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers forerunner.conf
elif ! getent passwd forerunner >/dev/null; then
	useradd --system --home-dir /var/lib/forerunner-scheduler --shell /usr/sbin/nologin forerunner
fi

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	# Only what runs. A worker finishes its actions first, which may take hours: nobody waits for it.
	systemctl try-restart forerunner-scheduler.service || true
	systemctl try-restart --no-block forerunner-worker.service || true
fi
