#!/bin/sh
# Writes an archive of ../data into this folder, checks it, and keeps the newest seven.
set -eu
archive="backup-$(date +%Y-%m-%d).tar.gz"
tar -czf "$archive.part" -C .. data
tar -tzf "$archive.part" >/dev/null
mv "$archive.part" "$archive"
ls -1t backup-*.tar.gz | tail -n +8 | while read -r old; do rm -- "$old"; done
echo "$archive"
