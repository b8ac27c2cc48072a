#!/bin/bash
while read -r -n 1 letter; do
  [ -n "$letter" ] && awk -v l="$letter" '$1 == l { print $2 }' /usr/local/share/morse.tsv
done < /app/letter.txt | paste -s -d ' ' > /app/code.txt
