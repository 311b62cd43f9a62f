<?php
// Leaves of 50 ns, 1 µs and 20 µs, each with a caller of its own: by a call, which its site proves, and by a callback, a magic method
// and a closure, which no site proves.
// How many turns of a loop take 20 microseconds on this machine, by the fastest of some tries. Defined here, none of these is a literal. A
// call takes 20 ns of its own.
define('TRIED', 5000);
$fastest = INF;
for ($try = 0; $try < 100; $try++) {
    $begin = hrtime(true);
    for ($i = 0; $i < TRIED; $i++);
    $fastest = min($fastest, hrtime(true) - $begin);
}
$turns = (int) (TRIED * 20000 / $fastest);
define('LONG', $turns);
define('SMALL', intdiv($turns, 20));
define('TINY', intdiv($turns, 667));

class Magic
{
    public function __get($name) { for ($i = 0; $i < TINY; $i++); return 1; }
    public function __call($name, $arguments) { for ($i = 0; $i < SMALL; $i++); }
    public function __toString() { for ($i = 0; $i < LONG; $i++); return ''; }
}

function tiny($x) { for ($i = 0; $i < TINY; $i++); return 1; }
function small($x) { for ($i = 0; $i < SMALL; $i++); }
function long($x) { for ($i = 0; $i < LONG; $i++); }

function tinyByCall() { return tiny(1); }
function tinyByCallback() { return array_map('tiny', [1]); }
function tinyByMagic(Magic $magic) { return $magic->nothing; }
function tinyByClosure(Closure $closure) { return $closure(); }
function smallByCall() { small(1); }
function smallByCallback() { array_map('small', [1]); }
function smallByMagic(Magic $magic) { $magic->nothing(); }
function smallByClosure(Closure $closure) { $closure(); }
function longByCall() { long(1); }
function longByCallback() { array_map('long', [1]); }
function longByMagic(Magic $magic) { return (string) $magic; }
function longByClosure(Closure $closure) { $closure(); }

$magic = new Magic;
$tiny = function () { for ($i = 0; $i < TINY; $i++); return 1; };
$small = function () { for ($i = 0; $i < SMALL; $i++); };
$long = function () { for ($i = 0; $i < LONG; $i++); };
// The time that a short leaf loses goes to the code that runs a moment later, so they alternate.
for ($turn = 0; ; $turn++) {
    for ($i = 0; $i < 4; $i++) {
        tinyByCall();
        tinyByCallback();
        tinyByMagic($magic);
        tinyByClosure($tiny);
        tinyByCall();
        tinyByMagic($magic);
        tinyByClosure($tiny);
    }
    switch ($turn % 16) {
        case 0: longByCall(); break;
        case 4: longByCallback(); break;
        case 8: longByMagic($magic); break;
        case 12: longByClosure($long); break;
        default:
            switch ($turn % 4) {
                case 0: smallByCall(); smallByCall(); break;
                case 1: smallByCall(); smallByCallback(); break;
                case 2: smallByMagic($magic); smallByClosure($small); break;
                case 3: smallByCallback(); smallByMagic($magic); smallByClosure($small); break;
            }
    }
}
