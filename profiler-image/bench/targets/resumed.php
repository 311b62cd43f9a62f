<?php
// A separate generator for each way to resume one, in turn, so that they get the same addresses.
function work($text) { return strrev($text); }
function stepped() { for ($i = 0; $i < 3; $i++) { $sent = yield work('abc'); } }
function gathered() { yield work('abc'); yield work('def'); }
function spread() { yield work('abc'); yield work('def'); }
function listed() { yield work('abc'); yield work('def'); }
function &referred() { $text = work('abc'); yield $text; $text = work('def'); yield $text; }
function ended() { try { yield work('abc'); yield 'def'; } finally { work('ghi'); } }
function inner() { yield work('abc'); yield work('def'); }
function outer() { yield work('abc'); yield from inner(); yield work('def'); }
class Shelf implements IteratorAggregate {
    public function getIterator(): Iterator { yield work('abc'); yield work('def'); }
}
function stepping() { $generator = stepped(); $generator->current(); $generator->next(); $generator->send('def'); }
function gathering() { return iterator_to_array(gathered()); }
function spreading() { return taken(...spread()); }
function taken($first, $second) { return $first; }
function listing() { return [...listed()]; }
function referring() { foreach (referred() as &$text) { $text = 'ghi'; } }
function aggregating() { foreach (new Shelf() as $text) { taken($text, $text); } }
function ending() { foreach (ended() as $text) { break; } }
function delegating() { $generator = outer(); while ($generator->valid()) { $generator->next(); } }
for (;;) { stepping(); gathering(); spreading(); listing(); referring(); aggregating(); ending(); delegating(); }
