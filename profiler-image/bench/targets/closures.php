<?php
// A closure for each call, created and freed at full speed.
function leaf1($x) { return $x + 1; }
function leaf2($x) { return $x + 2; }
function make($n) { return $n ? function ($x) { return leaf1($x); }
                              : function ($x) { return leaf2($x); }; }
function callIt($n) { $closure = make($n); return $closure(1); }
function mapIt() { return array_map(fn ($x) => leaf1($x), [1]); }
for (;;) { callIt(true); callIt(false); mapIt(); }
