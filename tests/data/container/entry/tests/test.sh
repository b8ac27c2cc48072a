#!/bin/sh
reward=0
[ "$(pwd)" = /var/stock ] && [ "$(cat /var/stock/stock.txt 2>/dev/null)" = "3 north wall" ] && reward=1
mkdir -p /logs/verifier
echo "$reward" > /logs/verifier/reward.txt
