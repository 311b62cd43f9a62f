<?php
// Keeps a large value as text, and reads it again; or a small one.
function work() { for ($i = 0; $i < 100000; $i++) { $sum = ($sum ?? 0) + $i % 7; } return $sum; }
$value = [];
for ($i = 0; $i < (getenv('PROBLEM') === 'has' ? 20000 : 20); $i++) { $value["key$i"] = ['id' => $i, 'name' => "name $i"]; }
while (true) {
    $text = json_encode($value);
    json_decode($text, true);
    work();
}
