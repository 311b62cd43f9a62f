<?php

// One request: four code paths that spend 60, 25, 10 and 5 % of its CPU time by construction.
// The answer is what each really took of the clock, in nanoseconds, so that a profile can be held against the truth.
// It does nothing useful, reads no input and keeps no state of its own.

declare(strict_types=1);

namespace Demo;

// Once, because a server that keeps PHP's state runs this file for each request all the same.
require_once __DIR__ . '/Autoloader.php';
spl_autoload_register([Autoloader::class, 'load']);

// Only in the demo of an upgrade (`make demo CASE=upgrade`).
$upgrade = getenv('UPGRADE');
if ($upgrade !== false) {
    set_error_handler([new Upgrade\Errors(), 'handle']);
}

$paths = [
    'checkout' => [(new Checkout\Cart())->checkout(...), 12],
    'search' => [(new Search\Catalogue())->search(...), 5],
    'render' => [(new Render\Page())->render(...), 2],
    'audit' => [Audit\Trail::record(...), 1],
];

$took = [];
foreach ($paths as $name => [$path, $milliseconds]) {
    $start = hrtime(true);
    $path(new Budget($milliseconds));
    $took[$name] = hrtime(true) - $start;
}

if ($upgrade !== false) {
    Upgrade\Import::run($upgrade === 'after');
}

header('Content-Type: application/json');
echo json_encode($took);
