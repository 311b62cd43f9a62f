#!/usr/bin/env bash
# PHP 8.3.6 of Ubuntu 24.04: a security update moves the fields of zend_mm_heap from `huge_list` on by 16 bytes, and those of each chunk by 24.
# Version, API numbers and build id say nothing of it: both are 8.3.6, NTS, API 20230831. A debugger's script, or a profiler, that has one
# layout for each version reads other fields after the update. The heap itself tells: its pointer to its main chunk leads to itself.
#
# Seen: 8.3.6 of noble has the pointer at 312 and the chunk's map at 520, 8.3.6 of noble-security at 328 and 544
# Unpacks both from Ubuntu's archive into a temporary folder (mmdebstrap, as root), runs them without phpprof, and fails if they do not differ.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
curl -sSfL -o keyring.deb http://archive.ubuntu.com/ubuntu/pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb
echo '36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8  keyring.deb' | sha256sum --check --quiet
dpkg -x keyring.deb keyring
archive="[signed-by=$folder/keyring/usr/share/keyrings/ubuntu-archive-keyring.gpg] http://archive.ubuntu.com/ubuntu"
cat >places.py <<'P'
import re, struct, subprocess, sys

code = 'fwrite(STDOUT, PHP_VERSION . "\n"); fgets(STDIN);'
php = subprocess.Popen(["chroot", sys.argv[1], "/usr/bin/php8.3", "-n", "-r", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
version = php.stdout.readline().decode().strip()
memory = open(f"/proc/{php.pid}/mem", "rb", 0)
word = lambda at: (memory.seek(at), struct.unpack("<Q", memory.read(8))[0])[1]
chunk = None
for line in open(f"/proc/{php.pid}/maps"):
    start, end, mode = re.match(r"(\w+)-(\w+) (\S+)", line).groups()
    first = -(-int(start, 16) >> 21) << 21
    if mode == "rw-p":
        chunk = next((at for at in range(first, int(end, 16), 1 << 21) if word(at) == at + 64), chunk)
pointer = next(at for at in range(296, 400, 8) if word(chunk + 64 + at) == chunk)
pages = next(at for at in range(448, 700, 8) if word(chunk + at) & 0xFFFFFFFF == 0x40000001)
php.communicate(b"\n")
print(version, pointer, pages)
P
for pockets in noble noble,noble-security; do
  sources=()
  for pocket in ${pockets//,/ }; do sources+=("deb $archive $pocket main universe"); done
  mmdebstrap --quiet --variant=extract --format=directory --include=php8.3-cli noble "$pockets" "${sources[@]}"
  for link in bin lib lib64; do [ -e "$pockets/$link" ] || ln -s "usr/$link" "$pockets/$link"; done
  python3 places.py "$folder/$pockets" | tee "$pockets.places"
done
[ "$(cat noble.places)" = "8.3.6 312 520" ] && [ "$(cat noble,noble-security.places)" = "8.3.6 328 544" ]
