<?php

// Some CPU time, to be spent on one kind of work. CPU time and not the clock, so that a path that
// is preempted keeps its share; what is spent too much is less than one unit of work, about 0.05 ms.

declare(strict_types=1);

namespace Demo;

final class Budget
{
    public function __construct(private readonly int $milliseconds)
    {
    }

    /** @param callable(): mixed $unit */
    public function spend(callable $unit): void
    {
        $end = self::used() + 1000 * $this->milliseconds;
        while (($left = $end - self::used()) > 0) {
            // hrtime() does not enter the kernel, where a busy machine would preempt this process each time.
            $until = hrtime(true) + 1000 * $left;
            do {
                $unit();
            } while (hrtime(true) < $until);
        }
    }

    /** CPU time of this process, or of this thread where a process has several that run PHP, in microseconds. */
    private static function used(): int
    {
        $usage = getrusage();
        if (PHP_ZTS) {
            // The kernel updates a running thread's file only at its ticks, and in getrusage().
            return intdiv((int) file_get_contents('/proc/thread-self/schedstat'), 1000);
        }

        return 1_000_000 * ($usage['ru_utime.tv_sec'] + $usage['ru_stime.tv_sec'])
            + $usage['ru_utime.tv_usec'] + $usage['ru_stime.tv_usec'];
    }
}
