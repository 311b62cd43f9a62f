<?php
// Most of its time is the engine's own functions, or loops of PHP.
function hash_all() { return md5(str_repeat('x', 1_000_000)); }
function loop() { for ($i = 0; $i < 1_000_000; $i++) { $sum = ($sum ?? 0) + $i % 7; } return $sum; }
while (true) { getenv('PROBLEM') === 'has' ? hash_all() : loop(); }
