#!/bin/sh
# Makes the secrets of deploy/compose.yaml that are not there yet.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
for name in admin-token db-password redis-password client-secret grafana-password; do
  [ -s "secrets/$name" ] || openssl rand -hex 24 > "secrets/$name"
done
[ -s secrets/master-key ] || openssl rand -base64 48 | tr -d '\n' > secrets/master-key
# The containers' users read them; nobody else gets into the folder.
chmod 0444 secrets/*
echo "secrets are in $PWD/secrets"
