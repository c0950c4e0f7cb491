#!/bin/bash
# Fails on purpose, after a line that must be in its log.
echo "about to fail with 3"
exit 3
