<?php

// A FrankenPHP worker: includes the script named by WORKER_SCRIPT in the environment for each request, and what it prints is the answer.

declare(strict_types=1);

$script = getenv('WORKER_SCRIPT');
while (frankenphp_handle_request(static function () use ($script): void {
    include $script;
}));
