#!/usr/bin/env bash
# Linux 6.18: where programs compete for a CPU, most time slices end inside getrusage(2), however short it is. The call brings the thread's
# CPU time up to date, and so notices that the slice is over; anything else waits for the next tick (`update_curr`, kernel/sched/fair.c).
# So a program that measures its own CPU time by it waits for the CPU there, and a profiler that comes when a slice ends shows this call.
#
# Seen (Linux 6.18, 250 ticks a second, one CPU shared with one busy program): getrusage has 5 % of a program's time, and 97 to 100 % of its
# slices end there. With getppid in its place, 0 to 1 % do.
# Compiles a program in a temporary folder, runs it without phpprof, and fails if slices do not end there.
set -euo pipefail
folder=$(mktemp -d)
hog=
trap 'if [ -n "$hog" ]; then kill "$hog"; fi; rm -rf "$folder"' EXIT
cd "$folder"
cat >slices.c <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long now(void) {
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

int main(int count, char **words) {
	int is_usage = count > 1 && atoi(words[1]);
	struct rusage usage;
	long in_call = 0, elsewhere = 0, calling = 0, all = 0;
	long end = now() + 5000000000L, last = now();
	while (last < end) {
		for (volatile int step = 0; step < 60000; step++)
			;
		long before = now();
		if (is_usage)
			getrusage(RUSAGE_SELF, &usage);
		else
			syscall(SYS_getppid);
		long after = now();
		/* Nothing but another program takes a millisecond. */
		if (after - before > 1000000)
			in_call++;
		else if (before - last > 1000000)
			elsewhere++;
		else
			calling += after - before, all += after - last;
		last = after;
	}
	printf("%ld %ld\n", 100 * in_call / (in_call + elsewhere + !in_call), 100 * calling / all);
}
C
gcc -O2 -o slices slices.c
taskset -c 0 sh -c 'while :; do :; done' &
hog=$!
read -r usage usage_time < <(taskset -c 0 ./slices 1)
read -r parent parent_time < <(taskset -c 0 ./slices 0)
echo "getrusage has $usage_time % of the time, and $usage % of the slices end in it; getppid: $parent_time % and $parent %"
[ "$usage" -gt $((usage_time + 40)) ] && [ "$parent" -lt $((parent_time + 20)) ] || { echo "this has changed" >&2; exit 1; }
