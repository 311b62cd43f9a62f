<?php
// Works and waits in turn, for `seconds`, in slices of `slice` milliseconds, more or less by a half, so that it is not in step with
// any rate of samples. It waits for `pause` microseconds instead, if that is set. Prints its CPU clock at the beginning and at the end of each of its functions. Started by its argument, or by a request.
parse_str($argv[1] ?? $_SERVER['QUERY_STRING'], $asked);
set_time_limit(0);

function processTime(): int
{
    $usage = getrusage();
    return ($usage['ru_utime.tv_sec'] + $usage['ru_stime.tv_sec']) * 1_000_000_000 + ($usage['ru_utime.tv_usec'] + $usage['ru_stime.tv_usec']) * 1000;
}

// getrusage() counts all threads.
function threadTime(): Closure
{
    $library = FFI::cdef('typedef struct { long seconds; long nanoseconds; } timespec; int clock_gettime(int clock, timespec *time);');
    $time = $library->new('timespec');
    $address = FFI::addr($time);
    return function () use ($library, $time, $address): int {
        $library->clock_gettime(3, $address); // CLOCK_THREAD_CPUTIME_ID
        return $time->seconds * 1_000_000_000 + $time->nanoseconds;
    };
}

// User code, and an internal function.
function counting(int $until): void { do { for ($i = 0; $i < 1000; $i++); } while (hrtime(true) < $until); }
function hashing(int $until): void { global $text; do { md5($text); } while (hrtime(true) < $until); }

function waiting(int $nanoseconds): void
{
    global $asked, $to, $from, $lock;
    if ($asked['wait'] === 'usleep') {
        usleep(intdiv($nanoseconds, 1000));
        return;
    }
    fwrite($to, pack('N', intdiv($nanoseconds, 1000)));
    fread($from, 1);
    if ($asked['wait'] === 'flock') {
        flock($lock, LOCK_EX);
        flock($lock, LOCK_UN);
    }
}

$pause = isset($asked['pause']) ? $asked['pause'] * 1000 : null;
$text = str_repeat('x', 20_000);
$slice = (int) ($asked['slice'] * 1_000_000);
switch ($asked['wait']) {
    case 'flock':
        $lock = fopen($asked['path'] . '.lock', 'r');
        // The holder of the lock is told the time, like the writer of a pipe.
    case 'pipe':
        $to = fopen($asked['path'] . '.to', 'w');
        $from = fopen($asked['path'] . '.from', 'r');
        break;
    case 'socket':
    case 'turns':
        $to = $from = stream_socket_client('tcp://' . $asked['path']);
        break;
}
// One of two that take turns waits first.
if (isset($asked['second'])) {
    fread($from, 1);
}
$clock = PHP_ZTS ? threadTime() : processTime(...);
$marks = [];
$end = hrtime(true) + $asked['seconds'] * 1_000_000_000;
for ($turn = 0; hrtime(true) < $end; $turn++) {
    // Work may follow work, too.
    $function = ['counting', 'waiting', 'counting', 'hashing', 'waiting'][$turn % 5];
    $marks[] = [hrtime(true), $clock(), $function];
    $length = $function === 'waiting' ? $pause ?? $slice : $slice;
    $nanoseconds = mt_rand($length >> 1, $length + ($length >> 1));
    $function === 'waiting' ? waiting($nanoseconds) : $function(hrtime(true) + $nanoseconds);
    // What follows is the record's.
    $marks[] = [hrtime(true), $clock(), ''];
}
$marks[] = [hrtime(true), $clock(), ''];
echo json_encode([(int) basename(readlink('/proc/thread-self')), $marks]);
