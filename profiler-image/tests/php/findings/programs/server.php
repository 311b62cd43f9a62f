<?php
// The server of the programs: the first argument is a port, the second an answer's delay in milliseconds, the third the answer.
[, $port, $milliseconds, $answer] = $argv;
$server = stream_socket_server("tcp://127.0.0.1:$port");
$open = [];
while (true) {
    $ready = [$server, ...$open];
    $none = null;
    stream_select($ready, $none, $none, 60);
    foreach ($ready as $one) {
        if ($one === $server) { $open[] = stream_socket_accept($server); continue; }
        $asked = fread($one, 65536);
        if ($asked === '' || $asked === false) { unset($open[array_search($one, $open, true)]); fclose($one); continue; }
        usleep($milliseconds * 1000);
        fwrite($one, $answer === 'redis' ? "$5\r\nvalue\r\n" : "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    }
}
