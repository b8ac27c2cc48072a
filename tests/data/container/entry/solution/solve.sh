#!/bin/sh
echo "$(cat /run/shed/count) $SHED" > stock.txt
