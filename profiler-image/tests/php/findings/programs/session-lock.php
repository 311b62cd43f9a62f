<?php
// Two processes with one session. If one ends the session before it works, the other does not wait.
session_save_path(getcwd());
ini_set('session.use_cookies', '0');
session_cache_limiter('');
function request(bool $early) {
    session_id('one');
    session_start();
    if ($early) { session_write_close(); }
    $until = hrtime(true) + 20_000_000;
    while (hrtime(true) < $until) { $sum = ($sum ?? 0) + 1; }
    usleep(10_000);
    if (!$early) { session_write_close(); }
}
pcntl_fork();
while (true) { request(getenv('PROBLEM') !== 'has'); }
