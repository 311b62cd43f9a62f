<?php
// Loads many classes in each request, all of which are found at once, or few.
require __DIR__ . '/classes.php';
function load(string $class) {
    $words = array_map('ucfirst', explode('_', "classes_deep_deeper_$class"));
    include strtolower(implode('/', array_slice($words, 0, 3))) . '/' . $words[3] . '.php';
}
spl_autoload_register('load');
function work() { for ($i = 0; $i < 100000; $i++) { $sum = ($sum ?? 0) + $i % 7; } return $sum; }
$count = getenv('PROBLEM') === 'has' ? COUNT : 5;
for ($i = 0; $i < $count; $i++) { class_exists("C$i"); }
if ($count < COUNT) { work(); work(); work(); }
