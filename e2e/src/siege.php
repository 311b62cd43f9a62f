// A hostile pod that attacks the relay: silent connections that are opened again when they are ended, uploads of 32 MiB that trickle, and a
// flood of invalid grants. Standard input is a JSON list of valid grants. Run by php -r, until /tmp/over exists or two minutes are over;
// it prints how many connections were opened and how many of the silent ones ended, how many valid uploads trickled at the same time, and answers.
$grants = json_decode(stream_get_contents(STDIN), true);
$relay = parse_url($grants[0]['url']);
$address = "$relay[host]:$relay[port]";
$unverified = stream_context_create(['ssl' => ['verify_peer' => false, 'verify_peer_name' => false]]);
$seen = ['opened' => 0, 'ended' => 0, 'trickling' => 0, 'answers' => []];

$silent = function () use ($address) {
    $stream = @stream_socket_client("tcp://$address", $code, $message, 5, STREAM_CLIENT_CONNECT | STREAM_CLIENT_ASYNC_CONNECT);
    $stream && stream_set_blocking($stream, false);
    return $stream;
};
// Sends the head of an upload, which announces far more bytes than follow.
$begin = function (string $url, string $authorization) use ($address, $unverified) {
    $stream = @stream_socket_client("tls://$address", $code, $message, 2, STREAM_CLIENT_CONNECT, $unverified);
    if ($stream) {
        $target = parse_url($url, PHP_URL_PATH) . '?' . parse_url($url, PHP_URL_QUERY);
        $digest = base64_encode(str_repeat('x', 32));
        $length = 32 << 20;
        @fwrite($stream, "PUT $target HTTP/1.1\r\nHost: relay\r\n{$authorization}Content-Length: $length\r\nContent-Digest: sha-256=:$digest:\r\n\r\n");
        stream_set_blocking($stream, false);
    }
    return $stream;
};
// Whether the relay has ended it; its answer is counted.
$ended = function ($stream, string $whose) use (&$seen) {
    $answer = @fread($stream, 4096);
    $what = $answer != '' ? substr($answer, 9, 3) : (feof($stream) ? 'cut' : '');
    if ($what === '') {
        return false;
    }
    $seen['answers'][$whose][$what] = ($seen['answers'][$whose][$what] ?? 0) + 1;
    return true;
};

// As many of each grant as the relay accepts at the same time, and as many again that it has to refuse.
$uploads = [];
foreach ($grants as ['url' => $url, 'authorization' => $authorization]) {
    for ($number = 0; $number < 4; $number++) {
        $uploads[] = ['granted', $url, "Authorization: $authorization\r\n", null];
        $uploads[] = ['strange', $url, $number % 2 ? "Authorization: Bearer none\r\n" : '', null];
    }
}
$silents = array_fill(0, 1000, null);
$until = time() + 120;
while (time() < $until && !file_exists('/tmp/over')) {
    // All at first, then a thousand a second.
    $more = $seen['opened'] ? 200 : 1000;
    foreach ($silents as &$stream) {
        if ($stream && @fread($stream, 1) === '' && !feof($stream)) {
            continue;
        }
        $seen['ended'] += $stream ? 1 : 0;
        $stream = $more-- > 0 ? $silent() : null;
        $seen['opened'] += $stream ? 1 : 0;
    }
    unset($stream);
    $trickling = 0;
    foreach ($uploads as &$upload) {
        [$whose, $url, $authorization, $stream] = $upload;
        if (!$stream) {
            $upload[3] = $begin($url, $authorization);
        } elseif ($ended($stream, $whose)) {
            $upload[3] = null;
        } else {
            @fwrite($stream, 'x');
            $trickling += $whose === 'granted' ? 1 : 0;
        }
    }
    unset($upload);
    $seen['trickling'] = max($seen['trickling'], $trickling);
    touch('/tmp/besieging');
    usleep(200_000);
}
echo json_encode($seen);
