<?php
// Generators that are freed and made again at the same addresses: one iterates another, one delegates to another.
function title($text) { return ucwords($text); }
function shelf($titles) { foreach ($titles as $title) { yield title($title); } }
function iterating() { foreach ([['a b', 'c d'], ['e f']] as $titles) { foreach (shelf($titles) as $title) { yield $title; } } }
function delegating() { foreach ([['a b', 'c d'], ['e f']] as $titles) { yield from shelf($titles); } }
function first() { foreach (iterating() as $title) { used($title); } }
function second() { foreach (delegating() as $title) { used($title); } }
function used($title) { return $title; }
for (;;) { first(); second(); }
