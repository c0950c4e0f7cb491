#!/bin/bash
# Never ends by itself and leaves a child in a session of its own, which must die as well.
echo "about to hang"
setsid sleep 3217 &
sleep 3217
