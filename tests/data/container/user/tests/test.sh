#!/bin/bash
# Each of these is a question about owners; all of them must hold whatever was submitted.
fail() { echo "owners are not as the image says: $1"; exit 3; }
[ "$(id -un)/$(id -u)/$(id -gn)/$(id -g)" = gardener/1500/growers/1700 ] || fail "$(id)"
[ "$(stat -c %u:%g /srv/rules.txt)" = 0:0 ] || fail "the rules are $(stat -c %u:%g /srv/rules.txt)"
[ "$(stat -c %u:%g /home/gardener/plot)" = 1500:1700 ] || fail "the plot"
if { echo changed >> /srv/rules.txt; } 2>/dev/null; then fail "the rules could be changed"; fi
if { : > /usr/bin/gardener-was-here; } 2>/dev/null; then fail "/usr/bin could be written"; fi
if { cat /srv/secret.txt; } 2>/dev/null; then fail "a file of root's could be read"; fi
chown 1500 /srv/rules.txt 2>/dev/null && fail "the rules could be taken"
touch own && rm own || fail "the plot could not be written"
reward=0
if [ -f first.txt ] && [ "$(cat first.txt)" = "Water in the evening." ] &&
  [ "$(stat -c %u:%g first.txt)" = 1500:1700 ]; then
  reward=1
fi
echo "$reward" > /logs/verifier/reward.txt
