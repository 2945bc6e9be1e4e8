#!/bin/bash
# Packs a built program: dist.sh PROGRAM FOLDER
#
# tar.gz, .deb and, where rpmbuild is, .rpm, a list of what is inside (CycloneDX)
# and checksums. TOOL is a program that runs here and prints manual pages and
# completions, if PROGRAM is for another processor. COMPRESSION=fast is for tests.
set -euo pipefail

[ $# -eq 2 ] || { echo "usage: dist.sh PROGRAM FOLDER" >&2; exit 2; }
program=$(realpath "$1")
mkdir -p "$2"
dist=$(realpath "$2")
cd "$(dirname "$0")/../.."
here=deploy/package
tool=$(realpath "${TOOL:-$program}")
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# The same input gives the same files.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
umask 022
if [ "${COMPRESSION:-}" = fast ]; then
  gzip_level=-1 deb_level='-Zgzip -z1' rpm_level=w1.gzdio
else
  gzip_level=-9 deb_level='-Zxz -z6' rpm_level=w6.xzdio
fi

case $(readelf -h "$program" | sed -n 's/ *Machine: *//p') in
  *X86-64) arch=x86_64 deb_arch=amd64 ;;
  AArch64) arch=aarch64 deb_arch=arm64 ;;
  *) echo "dist: $program is for no processor that is packed" >&2; exit 1 ;;
esac
# What asks for a loader needs the C library of its system, and its name says so.
if readelf -l "$program" | grep -q INTERP; then
  name=doorward-$version-$arch-linux-glibc
  depends='libc6, libgcc-s1, passwd'
  rpm_depends=(--define 'c_library glibc, libgcc')
  echo "dist: $program is no static file: the packages depend on the C library" >&2
else
  name=doorward-$version-$arch-linux
  depends=passwd
  rpm_depends=()
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root

# What every package installs.
install -Dm0755 "$program" "$root/usr/bin/doorward"
mkdir -p "$root/usr/share/man/man1"
"$tool" man "$root/usr/share/man/man1" >/dev/null
gzip -9n "$root"/usr/share/man/man1/*.1
mkdir -p "$work/completions"
for shell in bash zsh fish; do "$tool" completions "$shell" > "$work/completions/$shell"; done
install -Dm0644 "$work/completions/bash" "$root/usr/share/bash-completion/completions/doorward"
install -Dm0644 "$work/completions/fish" "$root/usr/share/fish/vendor_completions.d/doorward.fish"
install -Dm0644 conf/routes.yaml "$root/etc/doorward/routes.yaml"
install -d "$root/etc/doorward/routes.d"
# Installed, the state is not beside the file.
sed 's#&{doorward.data|../data}#\&{doorward.data|/var/lib/doorward}#; s#conf/doorward.yaml#/etc/doorward/doorward.yaml#' \
  conf/doorward.yaml > "$root/etc/doorward/doorward.yaml"
grep -q '|/var/lib/doorward}' "$root/etc/doorward/doorward.yaml"
install -Dm0644 $here/logrotate "$root/etc/logrotate.d/doorward"
install -d "$root/var/lib/doorward" "$root/var/log/doorward"
install -Dm0644 $here/sysusers.conf "$root/usr/lib/sysusers.d/doorward.conf"
units=(deploy/systemd/*.service deploy/systemd/*.socket)
for unit in "${units[@]}"; do
  [ -f "$unit" ] && install -Dm0644 "$unit" "$root/usr/lib/systemd/system/$(basename "$unit")"
done
[ -f "$root/usr/lib/systemd/system/doorward.service" ] \
  || echo "dist: deploy/systemd/doorward.service is missing: the packages have no unit" >&2
doc=$root/usr/share/doc/doorward
mkdir -p "$doc"
cp LICENSE "$doc/copyright"
cp README.md "$doc/"
cp -r docs "$doc/docs"
gzip -9nc CHANGELOG.md > "$doc/changelog.gz"
mkdir -p "$root/usr/share/doorward"
cp -r deploy/prometheus deploy/grafana deploy/haproxy "$root/usr/share/doorward/"
find "$root" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +

# The archive, for systems without these packages.
archive=$work/$name
mkdir -p "$archive"/{bin,man,completions,conf,systemd}
cp "$program" "$archive/bin/doorward"
cp "$root"/usr/share/man/man1/*.1.gz "$archive/man/"
cp "$work"/completions/* "$archive/completions/"
cp -r conf/doorward.yaml conf/routes.yaml conf/routes.d "$archive/conf/"
cp deploy/systemd/* "$archive/systemd/" 2>/dev/null || rmdir "$archive/systemd"
cp -r LICENSE README.md CHANGELOG.md docs "$archive/"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
  -C "$work" -cf - "$name" | gzip "$gzip_level" -n > "$dist/$name.tar.gz"
made=("$name.tar.gz")

# Debian, Ubuntu.
if command -v dpkg-deb >/dev/null; then
  deb=$work/deb
  cp -a "$root" "$deb"
  install -Dm0644 "$work/completions/zsh" "$deb/usr/share/zsh/vendor-completions/_doorward"
  mkdir "$deb/DEBIAN"
  sed "s/@VERSION@/$version/; s/@ARCH@/$deb_arch/; s/@DEPENDS@/$depends/; s/@SIZE@/$(du -sk "$root" | cut -f1)/" \
    $here/debian/control > "$deb/DEBIAN/control"
  printf '%s\n' /etc/doorward/doorward.yaml /etc/doorward/routes.yaml /etc/logrotate.d/doorward > "$deb/DEBIAN/conffiles"
  for script in postinst prerm postrm; do install -m0755 "$here/debian/$script" "$deb/DEBIAN/$script"; done
  (cd "$deb" && find usr -type f -print0 | sort -z | xargs -0 md5sum > DEBIAN/md5sums)
  # Without quotes: two words.
  dpkg-deb --root-owner-group $deb_level --build "$deb" "$dist/doorward_${version}_$deb_arch.deb" >/dev/null
  made+=("doorward_${version}_$deb_arch.deb")
else
  echo "dist: dpkg-deb is missing: no .deb" >&2
fi

# Fedora, RHEL, SUSE.
if command -v rpmbuild >/dev/null; then
  rpm=$work/rpm
  mkdir "$rpm"
  cp -a "$root" "$rpm/root"
  install -Dm0644 "$work/completions/zsh" "$rpm/root/usr/share/zsh/site-functions/_doorward"
  # Files alone: the folders of the system belong to other packages.
  (cd "$rpm/root" && find usr -type f -printf '"/%p"\n' | sort) > "$rpm/files"
  rpmbuild -bb --quiet --target "$arch-linux" \
    --define "_topdir $rpm" --define "_rpmdir $rpm/out" --define "staged $rpm/root" --define "file_list $rpm/files" \
    --define "doorward_version $version" --define "_dbpath $rpm/db" \
    --define "_binary_payload $rpm_level" "${rpm_depends[@]}" \
    --define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" \
    $here/doorward.spec 2> "$work/rpm.log" || { cat "$work/rpm.log" >&2; exit 1; }
  cp "$rpm"/out/*/*.rpm "$dist/"
  made+=("$(basename "$rpm"/out/*/*.rpm)")
else
  echo "dist: rpmbuild is missing: no .rpm" >&2
fi

python3 $here/sbom.py "$arch" > "$dist/$name.cdx.json"
made+=("$name.cdx.json")
(cd "$dist" && sha256sum "${made[@]}" > SHA256SUMS)
printf '%s\n' "${made[@]/#/$dist/}" "$dist/SHA256SUMS"
