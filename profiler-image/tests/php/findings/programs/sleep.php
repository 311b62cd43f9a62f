<?php
// Tries again after a while, in each request or in some.
function work() { $until = hrtime(true) + 20_000_000; while (hrtime(true) < $until) { $sum = ($sum ?? 0) + 1; } }
function try_again() { usleep(20_000); }
work();
if (getenv('PROBLEM') === 'has' || random_int(1, 100) === 1) { try_again(); }
