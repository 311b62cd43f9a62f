<?php
// Asks a cache server that needs 2 ms for each answer: for each of 20 keys in each page, or for one in some pages.
function work() { $until = hrtime(true) + 20_000_000; while (hrtime(true) < $until) { $sum = ($sum ?? 0) + 1; } }
$redis = new Redis();
$redis->connect('127.0.0.1', (int) getenv('SERVER'));
for ($page = 0; ; $page++) {
    $keys = getenv('PROBLEM') === 'has' ? 20 : (int) ($page % 10 === 0);
    for ($i = 0; $i < $keys; $i++) { $redis->get("key$i"); }
    work();
}
