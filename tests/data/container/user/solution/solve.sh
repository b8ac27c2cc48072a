#!/bin/bash
head -n 1 /srv/rules.txt > first.txt
