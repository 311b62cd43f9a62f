<?php
// A pattern that backtracks, or one that is used often.
function is_valid(string $name) { return @preg_match('/^(\w+\s?)+$/', $name) === 1; }
function is_number(string $text) { return preg_match('/^\d+$/', $text) === 1; }
while (true) {
    if (getenv('PROBLEM') === 'has') {
        is_valid('an invalid name !');
        is_valid('one that is invalid too, and quite long!');
    } else {
        for ($i = 0; $i < 1000; $i++) { is_number("$i"); }
    }
}
