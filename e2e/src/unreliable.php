// A faulty proxy in front of the store: php -r … STORE KEY=TROUBLE… Each connection is one request, and has a process. Requests
// whose target contains a KEY have its trouble; all others pass.
//   lose   the first PUT is passed on, and its answer discarded
//   fail   the first two PUTs, and the first two other requests, are answered with 500 and not passed on
//   full   the first two PUTs are answered with 507 and not passed on
//   slow   every answer takes two seconds
//   damage the body of the first PUT gets another last byte on its way
//   cut    half of the answers to the first PUT and to the first GET is sent
[, $store] = $argv;
$troubles = [];
foreach (array_slice($argv, 2) as $rule) {
    [$key, $trouble] = explode('=', $rule, 2);
    $troubles[$key] = $trouble;
}
$tls = ['local_cert' => '/tls/tls.crt', 'local_pk' => '/tls/tls.key', 'verify_peer' => false, 'verify_peer_name' => false];
$server = stream_socket_server('tcp://[::]:7071', $code, $message, STREAM_SERVER_BIND | STREAM_SERVER_LISTEN, stream_context_create(['ssl' => $tls]));

// A message with its body, whose length its head states.
function message($stream): ?string
{
    $text = '';
    while (!str_contains($text, "\r\n\r\n")) {
        $part = fread($stream, 65536);
        if ($part === false || $part === '') {
            return null;
        }
        $text .= $part;
    }
    $whole = strpos($text, "\r\n\r\n") + 4 + (preg_match('/^content-length: *(\d+)/im', $text, $found) ? (int) $found[1] : 0);
    while (strlen($text) < $whole && ($part = fread($stream, 65536)) !== '' && $part !== false) {
        $text .= $part;
    }
    return $text;
}

// Whether this is one of the first so many with this name, in all processes.
function is_among(int $first, string $name): bool
{
    $counter = '/tmp/' . md5($name);
    file_put_contents($counter, '.', FILE_APPEND | LOCK_EX);
    clearstatcache();
    return filesize($counter) <= $first;
}

// In one write: lines of several processes must not mix.
function said(string $target, string $done): void
{
    echo "$target: $done\n";
}

function passed_on(string $request, string $store, array $tls): string
{
    $upstream = stream_socket_client("tls://$store:7070", $code, $message, 5, STREAM_CLIENT_CONNECT, stream_context_create(['ssl' => $tls]));
    stream_set_timeout($upstream, 5);
    fwrite($upstream, $request);
    $answer = str_starts_with($request, 'HEAD') ? fread($upstream, 65536) : message($upstream);
    return preg_replace('/\r\n/', "\r\nConnection: close\r\n", $answer, 1);
}

function serve($client, string $store, array $tls, array $troubles): void
{
    stream_set_timeout($client, 5);
    if (!@stream_socket_enable_crypto($client, true, STREAM_CRYPTO_METHOD_TLS_SERVER) || ($request = message($client)) === null) {
        return;
    }
    $target = strtok($request, "?\r");
    $method = strtok($target, ' ');
    [$key, $trouble] = ['', ''];
    foreach ($troubles as $part => $of) {
        if (str_contains($target, $part)) {
            [$key, $trouble] = [$part, $of];
        }
    }
    $what = $key . ($method === 'PUT' ? 'PUT' : 'other');
    if (($trouble === 'fail' || $trouble === 'full' && $method === 'PUT') && is_among(2, $what)) {
        $status = $trouble === 'full' ? '507 Insufficient Storage' : '500 Internal Server Error';
        fwrite($client, "HTTP/1.1 $status\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        said($target, substr($status, 0, 3));
        return;
    }
    if ($trouble === 'slow') {
        sleep(2);
    }
    $damaged = $trouble === 'damage' && $method === 'PUT' && is_among(1, $what);
    if ($damaged) {
        $request = substr($request, 0, -1) . chr(ord($request[-1]) ^ 1);
    }
    $answer = passed_on($request, $store, $tls);
    $done = substr($answer, 9, 3) . ($damaged ? ' damaged' : '');
    if ($trouble === 'lose' && $method === 'PUT' && is_among(1, $what)) {
        [$answer, $done] = ['', "$done lost"];
    } elseif ($trouble === 'cut' && ($method === 'PUT' || $method === 'GET') && is_among(1, $key . $method)) {
        [$answer, $done] = [substr($answer, 0, intdiv(strlen($answer), 2)), "$done cut"];
    }
    fwrite($client, $answer);
    said($target, $done);
}

pcntl_signal(SIGCHLD, SIG_IGN);
while (true) {
    $client = @stream_socket_accept($server, -1);
    if ($client && pcntl_fork() === 0) {
        serve($client, $store, $tls, $troubles);
        exit;
    }
    if ($client) {
        fclose($client);
    }
}
