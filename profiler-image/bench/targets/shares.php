<?php
// Small calls and long internal functions in turn; when SIGTERM comes, the begin, middle and end of each turn are printed.
function a() { return b() + c(); }
function b() { return c() + 1; }
function c() { return 1; }
function smallCalls(int $until) { do { for ($i = 0; $i < 50; $i++) { a(); } } while (hrtime(true) < $until); }
function longCalls(string $text, int $until) { do { md5($text); } while (hrtime(true) < $until); }
function stop() { global $stopped; $stopped = true; }
pcntl_async_signals(true);
pcntl_signal(SIGTERM, 'stop');
$text = str_repeat('x', 400_000);
$turns = [];
$stopped = false;
while (!$stopped) {
    $begin = hrtime(true);
    smallCalls($begin + 4_000_000);
    $middle = hrtime(true);
    longCalls($text, $middle + 6_000_000);
    $turns[] = [$begin, $middle, hrtime(true)];
}
echo json_encode($turns), "\n";
