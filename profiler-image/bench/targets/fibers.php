<?php
// Fibers that are made, suspended, resumed and freed at full speed, one in another.
function reversed($text) { return strrev($text); }
function halved($text) { return Fiber::suspend(reversed($text)); }
function inner($text) { return reversed(halved($text)); }
function nested($text) { $fiber = new Fiber('inner'); $half = $fiber->start($text); Fiber::suspend($half); $fiber->resume($half); return ended($fiber); }
function ended($fiber) { return $fiber->getReturn(); }
function one() { $fiber = new Fiber('inner'); $half = $fiber->start('ab'); $fiber->resume($half); return ended($fiber); }
function two() { $fiber = new Fiber('nested'); $half = $fiber->start('ab'); $fiber->resume($half); return ended($fiber); }
for (;;) { one(); two(); }
