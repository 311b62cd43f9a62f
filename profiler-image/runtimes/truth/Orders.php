<?php

// 60 %: nesting and recursion, small static calls, array_map with a closure.

declare(strict_types=1);

final class Orders
{
    public function price(int $depth = 4): int
    {
        $nets = [199 * $depth, 1250, 4999, 89];
        $total = array_sum(array_map(function (int $net): int {
            return self::gross($net - $this->discount($net));
        }, $nets));

        return $depth === 0 ? $total : $total + $this->price($depth - 1) + $this->price($depth - 1);
    }

    private function discount(int $net): int
    {
        $percent = 0;
        for ($threshold = 100; $threshold < $net; $threshold *= 3) {
            $percent += 2;
        }

        return intdiv($net * $percent, 100);
    }

    private static function gross(int $net): int
    {
        return $net + self::rounded($net * 7) + self::rounded($net * 19);
    }

    private static function rounded(int $hundredths): int
    {
        return intdiv(2 * $hundredths + 100, 200);
    }
}
