#!/bin/sh
echo "$WORD" > /app/out.txt
