<?php
// Callbacks of internal functions, alternating.
function one($x) { return leaf1($x); }
function two($x) { return leaf2($x); }
function leaf1($x) { return $x + 1; }
function leaf2($x) { return $x + 2; }
function compare($x, $y) { return $x <=> $y; }
function mapOne() { return array_map('one', [1, 2]); }
function mapTwo() { return array_map('two', [1, 2]); }
function sorted() { $list = [3, 1, 2]; usort($list, 'compare'); return $list; }
for (;;) { mapOne(); mapTwo(); sorted(); }
