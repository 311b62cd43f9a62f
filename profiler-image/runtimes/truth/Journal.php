<?php

// 5 %: an autoloader that finds nothing, hash, array_filter with a closure, the name of a function as a callback.

declare(strict_types=1);

final class Journal
{
    public static function append(): string
    {
        $sinks = array_filter(['Kafka', 'Mail'], static function (string $sink): bool {
            return class_exists("{$sink}Sink");
        });
        $seal = implode(',', array_map('strrev', ['ordered', 'paid', 'packed']));
        for ($round = 0; $round < 10; $round++) {
            $seal = self::seal($seal, count($sinks));
        }

        return $seal;
    }

    public static function find(string $class): void
    {
        if (is_file(__DIR__ . "/none/$class.php")) {
            require __DIR__ . "/none/$class.php";
        }
    }

    private static function seal(string $entry, int $sinks): string
    {
        return hash('sha256', "$sinks:$entry");
    }
}

spl_autoload_register(['Journal', 'find']);
