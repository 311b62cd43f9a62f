<?php
// Builds an export of rows in memory, near the limit of 32 MiB; or half of it.
function export(int $rows) {
    $lines = [];
    for ($i = 0; $i < $rows; $i++) { $lines[] = str_repeat('x', 8000); }
    return count($lines);
}
while (true) { export(getenv('PROBLEM') === 'has' ? 3500 : 1800); usleep(1000); }
