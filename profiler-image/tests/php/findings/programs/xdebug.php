<?php
// Calls small functions, with Xdebug active or only loaded.
function small($i) { return $i % 7; }
function page() { for ($i = 0; $i < 100_000; $i++) { $sum = ($sum ?? 0) + small($i); } return $sum; }
while (true) { page(); }
