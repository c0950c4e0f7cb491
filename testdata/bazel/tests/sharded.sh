#!/bin/bash
# Each of the three shards must see its own index.
set -eu
touch "$TEST_SHARD_STATUS_FILE"
echo "shard $TEST_SHARD_INDEX of $TEST_TOTAL_SHARDS"
[ "$TEST_SHARD_INDEX" -lt "$TEST_TOTAL_SHARDS" ]
