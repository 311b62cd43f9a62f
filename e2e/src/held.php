// A connection to the relay: php -r … ADDRESS. It passes everything on unchanged, except the answer on the second connection that sends anything:
// the first one is the sampler's request about stopping, the second its profile. Bytes before them are of the handshake.
[, $relay] = $argv;
const HANDSHAKE = 1500;
$server = stream_socket_server('tcp://[::]:8443');
$lines = [];
$talking = [];
$held = null;
while (true) {
    $readable = [$server];
    foreach ($lines as [$client, $upstream]) {
        array_push($readable, $client, $upstream);
    }
    $writable = $urgent = null;
    stream_select($readable, $writable, $urgent, null);
    foreach ($readable as $stream) {
        if ($stream === $server) {
            $client = @stream_socket_accept($server, 0);
            $upstream = $client ? @stream_socket_client("tcp://$relay:8443", $code, $message, 2) : false;
            if ($upstream) {
                $lines[] = [$client, $upstream, 0];
            } elseif ($client) {
                fclose($client);
            }
            continue;
        }
        foreach ($lines as $number => [$client, $upstream, $brought]) {
            if ($stream !== $client && $stream !== $upstream) {
                continue;
            }
            $part = @fread($stream, 65536);
            if ($part === false || $part === '') {
                fclose($client);
                fclose($upstream);
                unset($lines[$number]);
            } elseif ($stream === $client) {
                fwrite($upstream, $part);
                $lines[$number][2] = $brought + strlen($part);
                $talking[$number] ??= count($talking) + 1;
                if ($held === null && $talking[$number] === 2 && $lines[$number][2] > HANDSHAKE) {
                    $held = $number;
                    echo "holds an answer\n";
                }
            } elseif ($number !== $held) {
                fwrite($client, $part);
            }
            continue 2;
        }
    }
}
