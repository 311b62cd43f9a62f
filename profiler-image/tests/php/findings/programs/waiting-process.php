<?php
function work() { $until = hrtime(true) + 20_000_000; while (hrtime(true) < $until) { $sum = ($sum ?? 0) + 1; } }
for ($i = 0; ; $i++) {
    if (getenv('PROBLEM') === 'has' || $i % 50 === 0) { shell_exec('sleep 0.02'); }
    work();
}
