<?php
// Attacks names: code that is created, run once and freed at full speed, so that other code has its addresses a
// moment later, and strings of all lengths that take the addresses of names. Each piece calls a function of its own:
// a frame under a name that is no longer, or not yet, its own is a call that this script cannot make.
function step($x) { return $x * 2; }
function alpha($x) { return step($x) + 1; }
function beta($x) { return step($x) + 2; }
function gamma($x) { return step($x) + 3; }
function delta($x) { return step($x) + 4; }
function epsilon($x) { return step($x) + 5; }
function zeta($x) { return step($x) + 6; }
function eta($x) { return step($x) + 7; }
function theta($x) { return step($x) + 8; }
function iota($x) { return step($x) + 9; }
function kappa($x) { return step($x) + 10; }
function lambda($x) { return step($x) + 11; }
function mu($x) { return step($x) + 12; }

function closures($n) {
    $closure = $n % 2
        ? function ($x) { return alpha($x); }
        : function ($x) use ($n) { return beta($x + $n); };
    return $closure(1);
}
function made($n) {
    $closure = $n % 2
        ? eval('return function ($x) { return gamma($x); };')
        : eval('return function ($x) { return delta($x); };');
    return $closure(1);
}
function evals($n) {
    return $n % 2
        ? eval('return epsilon(1);')
        : eval('return zeta(1);');
}
function letters() { yield eta(1); }
function numbers() { yield theta(1); }
function spell() { foreach (letters() as $x) { return $x; } }
function count_() { foreach (numbers() as $x) { return $x; } }
function objects($n) {
    $object = $n % 2
        ? new class { function run() { return iota(1); } }
        : new class { function run() { return kappa(1); } };
    return $object->run();
}
// Its class stays until the end, so it is rare.
function classes() { return (eval('return new class { function run() { return lambda(1); } };'))->run(); }
function included() { return include __DIR__ . '/attack/included.php'; }
function ghosts($n) {
    $ghosts = [];
    for ($length = 3; $length < 40; $length += 12) { $ghosts[] = str_repeat("ghost$n", $length); }
    return $ghosts;
}

// The compiler is slow, so pieces without it are more frequent.
for ($n = 0;; $n++) {
    for ($i = 0; $i < 8; $i++) { closures($i); spell(); objects($i); count_(); ghosts($i); }
    made($n);
    evals($n);
    odd(); even(); odd(); even();
    if ($n % 8 === 0) { included(); }
    if ($n % 512 === 0) { classes(); }
}
// Two closures at the same addresses, each with a caller of its own.
// The names of the closures have these two lines.
function odd() { $closure = eval('return function ($x) { return gamma($x); };'); return $closure(1); }
function even() { $closure = eval('return function ($x) { return delta($x); };'); return $closure(1); }
