<?php
// Requests that take a while: for more clients than workers, or for one.
function work() { for ($i = 0; $i < 300_000; $i++) { $sum = ($sum ?? 0) + $i % 7; } return $sum; }
for ($i = 0; $i < 80; $i++) { work(); }
