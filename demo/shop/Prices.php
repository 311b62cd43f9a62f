<?php

// What articles cost, out of a file.

declare(strict_types=1);

namespace Shop;

final class Prices
{
    public static function of(string $article): int
    {
        $prices = self::read();

        return $prices[$article]['cents'];
    }

    /** @return list<string> */
    public static function articles(): array
    {
        return array_keys(self::read());
    }

    /** @return array<string, array{cents: int, stock: int}> */
    private static function read(): array
    {
        return json_decode(file_get_contents(__DIR__ . '/prices.json'), true);
    }
}
