<?php
// Fibers that run for about 1, 5, 14 and 58 µs between two switches, and one for 14 µs that runs another one for 29. None ends: making one is a
// call of the kernel, which the sampler's reads wait for.
function work($loops) { for ($sum = 0; $loops > 0; $loops--) { $sum += $loops * $loops; } return $sum; }
function tiny() { for (;;) { Fiber::suspend(work(60)); } }
function small() { for (;;) { Fiber::suspend(work(300)); } }
function middle() { for (;;) { Fiber::suspend(work(1000)); } }
function long() { for (;;) { Fiber::suspend(work(4000)); } }
function inner() { for (;;) { Fiber::suspend(work(2000)); } }
function outer() { $fiber = new Fiber('inner'); $fiber->start(); for (;;) { work(1000); $fiber->resume(); Fiber::suspend(); } }
function resume($fiber, $times) { while ($times-- > 0) { $fiber->resume(); } }
$fibers = [];
foreach (['tiny', 'small', 'middle', 'long', 'outer'] as $name) { $fibers[$name] = new Fiber($name); $fibers[$name]->start(); }
for (;;) { resume($fibers['tiny'], 40); resume($fibers['small'], 10); resume($fibers['middle'], 4); resume($fibers['long'], 1); resume($fibers['outer'], 2); }
