<?php

// The innermost work of a checkout: small static calls.

declare(strict_types=1);

namespace Demo\Checkout;

final class Tax
{
    private const RATES = [7, 19];

    public static function gross(int $net): int
    {
        $gross = $net;
        foreach (self::RATES as $rate) {
            $gross += self::rounded($net * $rate, 200);
        }

        return $gross;
    }

    private static function rounded(int $numerator, int $denominator): int
    {
        return intdiv(2 * $numerator + $denominator, 2 * $denominator);
    }
}
