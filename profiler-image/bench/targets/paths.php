<?php
// One function on two paths: h1 -> w -> left and h2 -> w -> right. A stack that mixes the two is wrong, though each of
// its edges exists.
function left() { return 1; }
function right() { return 2; }
function w($which) { return $which ? left() : right(); }
function h1() { return w(true); }
function h2() { return w(false); }
for (;;) { h1(); h2(); }
