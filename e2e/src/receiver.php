<?php
// Stores each POST as a line of JSON; the very first call is answered with "too many". Run by php -S, in a pod.
if (!file_exists('/tmp/busy')) {
    touch('/tmp/busy');
    http_response_code(429);
    header('Retry-After: 1');
    return;
}
$call = [
    'path' => $_SERVER['REQUEST_URI'],
    'authorization' => $_SERVER['HTTP_AUTHORIZATION'] ?? '',
    'body' => json_decode(file_get_contents('php://input')),
];
file_put_contents('/tmp/kept', json_encode($call) . "\n", FILE_APPEND | LOCK_EX);
header('Content-Type: application/json');
echo '{}';
