<?php

// Memory that is kept for good, 50, 30 and 20 % of it by construction (the pages that strings of these lengths take), each in
// 50 ms; and a megabyte that is taken and given back.

declare(strict_types=1);

final class Memory
{
    /** @var list<list<string>> */
    private static $kept = [];

    /** What the engine took for the request is seen here. */
    public static function begin(): void
    {
        self::wait(hrtime(true) + 15000000);
    }

    public static function half(): void
    {
        self::$kept[] = self::built(61000);
    }

    public static function third(): void
    {
        self::$kept[] = self::built(36500);
    }

    public static function fifth(): void
    {
        self::$kept[] = self::built(24300);
    }

    public static function temporary(): int
    {
        $text = str_repeat('y', 1 << 20);
        self::wait(hrtime(true) + 20000000);

        return strlen($text);
    }

    private static function built(int $length): array
    {
        [$strings, $next] = [[], hrtime(true)];
        for ($count = 0; $count < 20; $count++) {
            $strings[] = str_repeat('x', $length);
            self::wait($next += 2500000);
        }

        return $strings;
    }

    private static function wait(int $until): void
    {
        while (hrtime(true) < $until);
    }
}
