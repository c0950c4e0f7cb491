#!/bin/bash
# Never ends by itself and leaves a child in a session of its own, which must die as well.
# The caller sets HANG_SECONDS to something that it can find again in a list of processes.
echo "about to hang"
setsid sleep "${HANG_SECONDS:-3217}" &
sleep "${HANG_SECONDS:-3217}"
