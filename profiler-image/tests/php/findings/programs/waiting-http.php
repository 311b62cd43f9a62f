<?php
// Asks a service that needs 20 ms for each answer: for each page, or for some.
function work() { $until = hrtime(true) + 20_000_000; while (hrtime(true) < $until) { $sum = ($sum ?? 0) + 1; } }
function ask() {
    $handle = curl_init('http://127.0.0.1:' . getenv('SERVER') . '/');
    curl_setopt($handle, CURLOPT_RETURNTRANSFER, true);
    return curl_exec($handle);
}
for ($i = 0; ; $i++) {
    if (getenv('PROBLEM') === 'has' || $i % 20 === 0) { ask(); }
    work();
}
