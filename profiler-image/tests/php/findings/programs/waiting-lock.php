<?php
// Two processes that count: in one file, or each in its own.
$child = pcntl_fork();
$file = fopen(getenv('PROBLEM') === 'has' ? 'count' : "count$child", 'c+');
function count_one($file) {
    flock($file, LOCK_EX);
    $until = hrtime(true) + 10_000_000;
    while (hrtime(true) < $until) { $sum = ($sum ?? 0) + 1; }
    usleep(10_000);
    flock($file, LOCK_UN);
}
while (true) { count_one($file); }
