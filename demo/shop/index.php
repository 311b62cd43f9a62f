<?php

// The shop of docs/tutorial.md: one page that lists its articles, the cheapest first.
// It has a bottleneck, as applications have them. It reads no input and keeps no state.

declare(strict_types=1);

namespace Shop;

require_once __DIR__ . '/Prices.php';
require_once __DIR__ . '/Listing.php';

header('Content-Type: text/html; charset=utf-8');
echo (new Listing())->page();
