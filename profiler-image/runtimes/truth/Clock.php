<?php

// Spends time of the clock, in units that take much less than a millisecond each. Not CPU time: the threads of a process
// share one account of that.

declare(strict_types=1);

final class Clock
{
    /** @return int what it really took, in nanoseconds */
    public static function spend(int $milliseconds, callable $unit): int
    {
        $begin = hrtime(true);
        $end = $begin + 1000000 * $milliseconds;
        do {
            $unit();
        } while (($now = hrtime(true)) < $end);

        return $now - $begin;
    }
}
