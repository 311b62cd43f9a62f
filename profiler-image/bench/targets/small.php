<?php
// Nothing but small calls: functions, methods, static methods and internal functions, below DEPTH frames of recursion.
function a() { return b() . "a"; }
function b() { return c() . d(); }
function c() { return 1; }
function d() { return e(2); }
function e($x) { return f($x) . g($x); }
function f($x) { return $x; }
function g($x) { return strrev("ab"); }
class Small {
    public $n = 0;
    function m() { return $this->n(1); }
    function n($x) { $this->n = $x; return self::s($x) . static::t(); }
    static function s($x) { return $x; }
    static function t() { return "t"; }
}
function small(Small $object) { a(); $object->m(); }
function spin() { $object = new Small; for (;;) { small($object); } }
function deep(int $depth) { if ($depth > 0) { deep($depth - 1); } else { spin(); } }
deep((int) ($argv[1] ?? 0));
