#!/usr/bin/env bash
# musl 1.2.3: a line of /etc/resolv.conf with more than 254 bytes counts for nothing, without a word.
# Kubernetes allows 2,048 characters of search domains (KEP-2595). A static program in such a pod finds no name by its short form, while
# getent of glibc in the same pod does.
#
# Seen: with a search line of 250 bytes "web" is asked for as web.a.test.; with one of 300 bytes only as "web.", though a.test comes first.
# Installs musl in a temporary folder, asks a name server of its own in namespaces of its own (it needs root), without phpprof, and fails
# if a longer line counts.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download musl=1.2.3-1 musl-dev=1.2.3-1 >/dev/null 2>&1
for package in *.deb; do dpkg -x "$package" .; done
cat >ask.c <<'C'
#include <netdb.h>
int main(void) {
	struct addrinfo *found, hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
	return getaddrinfo("web", "80", &hints, &found) != 0;
}
C
lib=$(echo usr/lib/*-linux-musl)
gcc -nostdinc -isystem usr/include/*-linux-musl -nostdlib -static -no-pie -o ask "$lib/crt1.o" "$lib/crti.o" ask.c "$lib/libc.a" -lgcc "$lib/crtn.o"
cat >server.py <<'PY'
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
open("ready", "w").close()
while True:
    question, sender = server.recvfrom(512)
    name, at = [], 12
    while question[at]:
        name.append(question[at + 1:at + 1 + question[at]].decode())
        at += question[at] + 1
    print(".".join(name), flush=True)
    # No such name.
    server.sendto(question[:2] + b"\x81\x83" + question[4:6] + bytes(6) + question[12:at + 5], sender)
PY
cat >inside.sh <<'SH'
ip link set lo up
mount --bind resolv.conf /etc/resolv.conf
rm -f ready
python3 server.py >"asked-$1" &
server=$!
while [ ! -e ready ]; do sleep 0.1; done
./ask || true
kill "$server"
SH
asked() { # BYTES: what is asked for with a search line of this length
  local line="search a.test" number=0
  while [ ${#line} -lt $(($1 - 20)) ]; do line="$line domain$((number += 1)).test"; done
  line="$line b$(printf '%*s' $(($1 - ${#line} - 2)) '' | tr ' ' x)"
  [ ${#line} -eq "$1" ]
  printf 'nameserver 127.0.0.1\noptions ndots:5\n%s\n' "$line" >resolv.conf
  unshare --net --mount sh inside.sh "$1"
  sort -u "asked-$1"
}
short=$(asked 250)
long=$(asked 300)
printf '250 bytes: %s\n300 bytes: %s\n' "$(echo $short)" "$(echo $long)"
grep -qx web.a.test <<<"$short"
[ "$long" = web ]
