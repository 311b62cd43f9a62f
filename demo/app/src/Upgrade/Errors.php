<?php

// An error handler as frameworks have one: it looks at each error closely, and drops deprecations. No log shows them.

declare(strict_types=1);

namespace Demo\Upgrade;

use ErrorException;

final class Errors
{
    private string $last = '';

    public function handle(int $level, string $message, string $file, int $line): bool
    {
        $error = new ErrorException($message, 0, $level, $file, $line);
        $this->last = $this->clean($error->getTrace()) . $error->getMessage();

        return $level === E_DEPRECATED || $level === E_USER_DEPRECATED;
    }

    /** @param list<array<string, mixed>> $trace */
    private function clean(array $trace): string
    {
        return implode("\n", array_map(static fn (array $call): string => ($call['class'] ?? '') . '::' . $call['function'], $trace));
    }
}
