<?php
// Builds many objects and keeps them: with cycles among them, or without.
class Node { public $other; public $many = []; }
function build(bool $cycles) {
    $all = [];
    for ($i = 0; $i < 60000; $i++) {
        $node = new Node();
        if ($cycles) { $node->other = $node; }
        $all[] = $node;
    }
    return $all;
}
while (true) { build(getenv('PROBLEM') === 'has'); }
