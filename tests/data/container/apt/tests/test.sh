#!/bin/bash
# The expected text is written out here: a broken `tree` must not agree with itself.
cat > /tmp/expected <<'TEXT'
/srv/garden
|-- beds
|   |-- beans
|   `-- herbs
|       `-- thyme
`-- shed
    `-- spade
TEXT
reward=0
cmp -s /tmp/expected /app/garden.txt && dpkg -s tree >/dev/null && reward=1
mkdir -p /logs/verifier
echo "$reward" > /logs/verifier/reward.txt
