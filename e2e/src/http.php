// Makes the HTTP calls that standard input lists as JSON, and prints the answers as JSON. Run by php -r, from a pod.
$input = json_decode(stream_get_contents(STDIN), true);
$authority = tempnam(sys_get_temp_dir(), 'ca');
file_put_contents($authority, $input['authority']);
$answers = [];
foreach ($input['calls'] as $call) {
    $body = str_repeat(base64_decode($call['body']), $call['times']);
    $headers = ['Content-Type: application/octet-stream', 'Connection: close'];
    foreach ($call['headers'] as $name => $value) {
        $headers[] = "$name: $value";
    }
    $context = stream_context_create([
        'http' => [
            'method' => $call['method'], 'header' => $headers, 'content' => $body, 'protocol_version' => '1.1',
            'ignore_errors' => true, 'follow_location' => 0, 'timeout' => 30,
        ],
        'ssl' => match (true) {
            $call['unverified'] => ['verify_peer' => false, 'verify_peer_name' => false],
            $input['authority'] === '' => [],
            default => ['cafile' => $authority],
        },
    ]);
    $http_response_header = [];
    error_clear_last();
    $answer = @file_get_contents($call['url'], false, $context);
    $answers[] = [
        'status' => (int) (explode(' ', $http_response_header[0] ?? 'none 0')[1]),
        'body' => base64_encode((string) $answer),
        'sent' => hash('sha256', $body),
        'error' => error_get_last()['message'] ?? '',
    ];
}
unlink($authority);
echo json_encode($answers);
