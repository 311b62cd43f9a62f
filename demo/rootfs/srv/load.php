<?php

// The load of the demo: a few requests at a time, for this many seconds. Once a second and at the end it prints
// one line of JSON: the requests and errors so far, and the nanoseconds that each code path took in them.
//
//   php load.php ADDRESS SECONDS CONNECTIONS PAUSE_MILLISECONDS [PATH...]
//
// ADDRESS is HOST:PORT of a FastCGI server, or http://HOST:PORT. Each connection sends one request, waits for its answer, pauses,
// and connects again, so that a Service spreads them over its pods; of several paths it asks for one after another. It is
// bounded in time and number whatever the server does, and talks to that one address only.

declare(strict_types=1);

const ROOT = '/srv/app';
const TIMEOUT_SECONDS = 5;
const START_SECONDS = 30;
const MAX_SECONDS = 600;
const MAX_CONNECTIONS = 64;

interface Protocol
{
    public function request(string $path): string;

    /** What a server has sent up to its close, as head, empty line and body. */
    public function text(string $answer): string;
}

final class FastCgi implements Protocol
{
    /** Records: "begin" (a responder, no keep-alive), parameters, end of parameters, end of the body. */
    public function request(string $path): string
    {
        $record = static fn (int $type, string $content): string => pack('CCnnCx', 1, $type, 1, strlen($content), 0) . $content;
        $pair = static fn (string $name, string $value): string => chr(strlen($name)) . chr(strlen($value)) . $name . $value;
        $parameters = $pair('REQUEST_METHOD', 'GET') . $pair('SCRIPT_FILENAME', ROOT . $path)
            . $pair('SCRIPT_NAME', $path) . $pair('REQUEST_URI', '/orders?id=1');

        return $record(1, pack('nCx5', 1, 0)) . $record(4, $parameters) . $record(4, '') . $record(5, '');
    }

    public function text(string $answer): string
    {
        $output = '';
        for ($at = 0; $at + 8 <= strlen($answer); $at += 8 + $header['length'] + $header['padding']) {
            $header = unpack('Cversion/Ctype/nid/nlength/Cpadding', $answer, $at);
            if ($header['type'] === 6) {
                $output .= substr($answer, $at + 8, $header['length']);
            }
        }

        return preg_match('/^Status: (.*)/', $output, $found) ? "HTTP/1.0 $found[1]\r\n$output" : "HTTP/1.0 200 OK\r\n$output";
    }
}

final class Http implements Protocol
{
    public function __construct(private readonly string $host)
    {
    }

    /** The old version: the answer is not in pieces, and ends with the connection. */
    public function request(string $path): string
    {
        return "GET $path HTTP/1.0\r\nHost: $this->host\r\n\r\n";
    }

    public function text(string $answer): string
    {
        return $answer;
    }
}

/** One request at a time on a connection of its own. */
final class Connection
{
    /** @var resource|null */
    public $stream = null;
    public float $due = 0.0;
    private string $answer = '';
    private int $sent = 0;

    /** @param non-empty-list<string> $paths */
    public function __construct(
        private readonly string $address,
        private readonly float $pause,
        private readonly Protocol $protocol,
        private readonly array $paths,
    ) {
    }

    /** Sends a request; false where nobody listens. */
    public function send(float $now): bool
    {
        $this->answer = '';
        $this->due = $now + TIMEOUT_SECONDS;
        $stream = @stream_socket_client("tcp://$this->address", $code, $message, TIMEOUT_SECONDS);
        $path = $this->paths[$this->sent++ % count($this->paths)];
        if ($stream === false || fwrite($stream, $this->protocol->request($path)) === false) {
            $this->close($now + 1);

            return false;
        }
        stream_set_blocking($stream, false);
        $this->stream = $stream;

        return true;
    }

    /** Reads what there is; the text of the whole answer once the server has closed. */
    public function receive(float $now): ?string
    {
        $this->answer .= stream_get_contents($this->stream);
        if (!feof($this->stream)) {
            return null;
        }
        $this->close($now + $this->pause);

        return $this->protocol->text($this->answer);
    }

    public function close(float $due): void
    {
        if ($this->stream !== null) {
            fclose($this->stream);
            $this->stream = null;
        }
        $this->due = $due;
    }
}

/** Waits until somebody listens: a Service knows its pods a moment after they are ready. */
function await(string $address): void
{
    for ($until = microtime(true) + START_SECONDS; microtime(true) < $until; usleep(100_000)) {
        if (@stream_socket_client("tcp://$address", $code, $message, 1) !== false) {
            return;
        }
    }
}

final class Load
{
    public int $requests = 0;
    public int $errors = 0;
    /** @var array<string, int> nanoseconds by code path */
    public array $nanoseconds = [];

    /** @param list<Connection> $connections */
    public function run(array $connections, float $end): void
    {
        for ($print = 0.0; ($now = microtime(true)) < $end;) {
            if ($now >= $print) {
                $print = $now + 1;
                echo json_encode($this), "\n";
            }
            foreach ($connections as $connection) {
                if ($connection->due <= $now) {
                    $this->next($connection, $now);
                }
            }
            $this->receive($connections);
        }
    }

    /** The pause is over, or nothing came in time. */
    private function next(Connection $connection, float $now): void
    {
        if ($connection->stream !== null) {
            $this->errors++;
            $connection->close($now);
        }
        $this->errors += $connection->send($now) ? 0 : 1;
    }

    private function receive(array $connections): void
    {
        $read = array_filter(array_column($connections, 'stream'));
        $write = $except = null;
        if ($read === [] || stream_select($read, $write, $except, 0, 5000) === 0) {
            usleep($read === [] ? 5000 : 0);

            return;
        }
        foreach ($connections as $connection) {
            $answer = in_array($connection->stream, $read, true) ? $connection->receive(microtime(true)) : null;
            if ($answer !== null) {
                $this->count($answer);
            }
        }
    }

    private function count(string $answer): void
    {
        [$head, $body] = explode("\r\n\r\n", $answer, 2) + [1 => ''];
        preg_match('~^HTTP/1.. 200 ~', $head) && $body !== '' ? $this->requests++ : $this->errors++;
        foreach ((array) json_decode($body, true) as $path => $nanoseconds) {
            $this->nanoseconds[$path] = ($this->nanoseconds[$path] ?? 0) + $nanoseconds;
        }
    }
}

if ($argc < 5) {
    fwrite(STDERR, "usage: php load.php [http://]HOST:PORT SECONDS CONNECTIONS PAUSE_MILLISECONDS [PATH...]\n");
    exit(2);
}
[$host, $port] = explode(':', preg_replace('~^http://~', '', $argv[1])) + [1 => '9000'];
$protocol = str_starts_with($argv[1], 'http://') ? new Http($host) : new FastCgi();
$address = gethostbyname($host) . ':' . $port;
$connections = [];
for ($count = min((int) $argv[3], MAX_CONNECTIONS); $count > 0; $count--) {
    $connections[] = new Connection($address, (int) $argv[4] / 1000, $protocol, array_slice($argv, 5) ?: ['/index.php']);
}
await($address);
$load = new Load();
$load->run($connections, microtime(true) + min((int) $argv[2], MAX_SECONDS));
echo json_encode($load), "\n";
exit($load->requests > 0 ? 0 : 1);
