<?php

// 60 %: nesting and recursion (a bundle contains bundles), static methods, array_map with a closure.

declare(strict_types=1);

namespace Demo\Checkout;

use Demo\Budget;

final class Cart
{
    private const DEPTH = 4;

    public function checkout(Budget $budget): void
    {
        $budget->spend(function (): void {
            $this->price(self::DEPTH);
        });
    }

    private function price(int $depth): int
    {
        $nets = [199 * $depth, 1250, 4999, 89];
        $total = array_sum(array_map(fn (int $net): int => Tax::gross($net - $this->discount($net)), $nets));

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
}
