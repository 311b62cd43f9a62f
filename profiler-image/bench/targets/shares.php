<?php
// Small calls and long internal functions in turn; the true times of both are printed when SIGTERM comes.
function a() { return b() + c(); }
function b() { return c() + 1; }
function c() { return 1; }
function smallCalls(int $until) { do { for ($i = 0; $i < 50; $i++) { a(); } } while (hrtime(true) < $until); }
function longCalls(string $text, int $until) { do { md5($text); } while (hrtime(true) < $until); }
function stop() { global $small, $long; echo json_encode(['smallCalls' => $small, 'longCalls' => $long]), "\n"; exit(0); }
pcntl_async_signals(true);
pcntl_signal(SIGTERM, 'stop');
$text = str_repeat('x', 400_000);
$small = $long = 0;
for (;;) {
    $begin = hrtime(true);
    smallCalls($begin + 4_000_000);
    $middle = hrtime(true);
    longCalls($text, $middle + 6_000_000);
    $small += $middle - $begin;
    $long += hrtime(true) - $middle;
}
