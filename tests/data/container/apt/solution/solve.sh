#!/bin/bash
tree --noreport --charset ascii /srv/garden > /app/garden.txt
