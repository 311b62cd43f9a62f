<?php
// Methods that the engine calls although the program does not name them.
class Magic {
    function __get($name) { return got(); }
    function __call($name, $arguments) { return called(); }
    static function __callStatic($name, $arguments) { return calledStatically(); }
    function __toString(): string { return text(); }
    function __invoke() { return invoked(); }
}
class Held {
    function __destruct() { destructed(); }
}
function got() { return 1; }
function called() { return 2; }
function calledStatically() { return 3; }
function text() { return "text"; }
function invoked() { return 4; }
function destructed() { return 5; }
function read($object) { return $object->missing; }
function call($object) { return $object->missing(); }
function callStatic() { return Magic::missing(); }
function print_($object) { return "x" . $object; }
function cast($object) { return (string) $object; }
function append($object) { $text = "x"; $text .= $object; return $text; }
function join_($objects) { return implode(",", $objects); }
// It converts nothing.
function count_($objects) { return count($objects) + spl_object_id($objects[0]); }
function invoke($object) { return $object(); }
// The engine destroys the variables of a function that returns when its caller is already the current one.
function hold() { $held = new Held; }
function returned() { hold(); }
function unset_() { $held = new Held; unset($held); }
function assign() { $held = new Held; $held = null; }
$magic = new Magic;
$list = [$magic];
for (;;) {
    read($magic); call($magic); callStatic(); print_($magic); invoke($magic);
    cast($magic); append($magic); join_($list); count_($list);
    returned(); unset_(); assign();
}
