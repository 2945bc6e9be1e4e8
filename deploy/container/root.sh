#!/bin/sh
# Lays out the root file system of the image: root.sh PROGRAM FOLDER
#
# There is no shell and no library in it: the program, the authorities that it
# trusts, the user, and the two folders that it may write to.
set -eu
program=$(realpath "$1")
root=$(realpath -m "$2")
cd "$(dirname "$0")/../.."
umask 022
mkdir -p "$root/usr/local/bin" "$root/etc/ssl/certs" "$root/etc/doorward/routes.d" "$root/var/lib/doorward" "$root/tmp"
cp "$program" "$root/usr/local/bin/doorward"
chmod 0755 "$root/usr/local/bin/doorward"
# Upstreams, providers and databases over TLS are verified by these.
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
cp deploy/container/doorward.yaml "$root/etc/doorward/"
echo 'doorward:x:10001:10001:Doorward:/var/lib/doorward:/' > "$root/etc/passwd"
echo 'doorward:x:10001:' > "$root/etc/group"
# Names are looked up without modules of the C library, which are not there.
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"
chmod 1777 "$root/tmp"
chmod 0700 "$root/var/lib/doorward"
