<?php
// One method name on two classes, from two callers, and from one call site for both.
class A { function run() { return $this->inner(); } function inner() { return 1; } }
class B { function run() { return $this->inner(); } function inner() { return strtoupper("b"); } }
function callA(A $object) { return $object->run(); }
function callB(B $object) { return $object->run(); }
function go($object) { return $object->run(); }
function goA(A $object) { return go($object); }
function goB(B $object) { return go($object); }
$a = new A; $b = new B;
for (;;) { callA($a); callB($b); goA($a); goB($b); }
