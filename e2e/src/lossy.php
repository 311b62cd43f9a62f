// A proxy in front of the store that loses one answer: php -r … STORE KEY. Each connection is one request. The first
// PUT with KEY in its target is passed on, and its answer is thrown away; everything else goes through.
[, $store, $key] = $argv;
$tls = ['local_cert' => '/tls/tls.crt', 'local_pk' => '/tls/tls.key', 'verify_peer' => false, 'verify_peer_name' => false];
$server = stream_socket_server('tcp://0.0.0.0:7071', $code, $message, STREAM_SERVER_BIND | STREAM_SERVER_LISTEN, stream_context_create(['ssl' => $tls]));

// A message with its body, which is as long as its head says.
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

$lost = false;
while (true) {
    $client = @stream_socket_accept($server, -1);
    if (!$client) {
        continue;
    }
    stream_set_timeout($client, 5);
    if (!@stream_socket_enable_crypto($client, true, STREAM_CRYPTO_METHOD_TLS_SERVER) || ($request = message($client)) === null) {
        fclose($client);
        continue;
    }
    $target = strtok($request, "?\r");
    $upstream = stream_socket_client("tls://$store:7070", $code, $message, 5, STREAM_CLIENT_CONNECT, stream_context_create(['ssl' => $tls]));
    stream_set_timeout($upstream, 5);
    fwrite($upstream, $request);
    $answer = str_starts_with($request, 'HEAD') ? fread($upstream, 65536) : message($upstream);
    $loses = !$lost && str_starts_with($request, 'PUT') && str_contains($target, $key);
    if ($loses) {
        $lost = true;
    } else {
        fwrite($client, preg_replace('/\r\n/', "\r\nConnection: close\r\n", $answer, 1));
    }
    echo $target, ': ', substr($answer, 9, 3), $loses ? ' lost' : '', "\n";
    fclose($upstream);
    fclose($client);
}
