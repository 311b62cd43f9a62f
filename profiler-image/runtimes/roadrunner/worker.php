<?php

// A RoadRunner worker without packages: `php roadrunner.php SCRIPT` includes SCRIPT for each request, and what it prints
// is the answer. It speaks goridge version 3 on its pipes: https://docs.roadrunner.dev/docs/general/protocol

declare(strict_types=1);

final class RoadRunnerWorker
{
    private const CONTROL = 0x01;
    private const JSON = 0x08;
    private const PROTO = 0x80;

    public static function run(string $script): void
    {
        while (([$flags, $payload] = self::receive()) && $payload !== null) {
            if (($flags & self::CONTROL) === 0) {
                self::answer(self::handle($script, $payload));
            } elseif (isset(json_decode($payload, true)['stop'])) {
                return;
            } else {
                self::send(self::CONTROL | self::JSON, '', json_encode(['pid' => getmypid()]));
            }
        }
    }

    private static function handle(string $script, string $payload): string
    {
        // As spiral/roadrunner-http does, so that the script finds its request.
        preg_match('~https?://[\w./:-]+~', $payload, $found);
        $time = microtime(true);
        $_SERVER = ['REQUEST_METHOD' => 'GET', 'REQUEST_URI' => $found[0] ?? '', 'REQUEST_TIME_FLOAT' => $time] + $_SERVER;
        ob_start();
        include $script;

        return ob_get_clean();
    }

    /** The body behind a protobuf Response with status 200: field 1, a number, 0xc8 0x01. */
    private static function answer(string $body): void
    {
        $head = "\x08\xc8\x01";
        self::send(self::PROTO, pack('V', strlen($head)), $head . $body);
    }

    /** @return array{int, ?string} flags and payload; no payload at the end of the pipe */
    private static function receive(): array
    {
        $head = self::read(12);
        if ($head === null) {
            return [0, null];
        }
        ['first' => $first, 'flags' => $flags, 'length' => $length] = unpack('Cfirst/Cflags/Vlength', $head);
        self::read(4 * (($first & 0x0f) - 3));

        return [$flags, self::read($length)];
    }

    private static function read(int $length): ?string
    {
        $bytes = '';
        while (strlen($bytes) < $length) {
            $part = fread(STDIN, $length - strlen($bytes));
            if ($part === false || $part === '') {
                return null;
            }
            $bytes .= $part;
        }

        return $bytes;
    }

    private static function send(int $flags, string $options, string $payload): void
    {
        $head = pack('CCV', 1 << 4 | 3 + intdiv(strlen($options), 4), $flags, strlen($payload));
        fwrite(STDOUT, $head . pack('V', crc32($head)) . "\0\0" . $options . $payload);
    }
}

RoadRunnerWorker::run($argv[1]);
