#!/usr/bin/env bash
# frozen.sh FOLDER: mounts an image of its own in FOLDER, at FOLDER/mounted, and freezes it for a test.
#
# Does: `freeze` and `thaw`, a line each, and answer each line with one. When its input ends, or says nothing for a minute, it thaws,
#   unmounts and detaches, so a test that fails or is killed leaves nothing behind.
# Does not: freeze anything but a file system on a loop device, which it checks in the folder that it freezes.
set -euo pipefail
folder=$1
image=$folder/image mounted=$folder/mounted

end() {
  trap - EXIT
  trap '' HUP INT TERM
  fsfreeze --unfreeze "$mounted" 2>/dev/null || true
  # Lazily: the loop device goes with the last process that has a file there.
  umount --lazy "$mounted" || true
}

freeze() (
  cd "$mounted"
  # The major number of loop devices (Linux, Documentation/admin-guide/devices.txt).
  [ "$(stat --format=%Hd .)" = 7 ] || { echo "frozen.sh: $mounted is not on a loop device" >&2 && exit 1; }
  fsfreeze --freeze .
)

truncate --size=16M "$image"
mkfs.ext4 -q "$image"
mkdir "$mounted"
if ! mount -o loop "$image" "$mounted"; then
  echo "frozen.sh: this test needs a loop device: run it as root, where /dev/loop-control is, or after modprobe loop" >&2
  exit 1
fi
trap end EXIT
trap 'exit 1' HUP INT TERM
echo mounted
while read -r -t 60 word; do
  case $word in
    freeze) freeze ;;
    thaw) fsfreeze --unfreeze "$mounted" ;;
    *) exit 2 ;;
  esac
  echo "$word"
done
