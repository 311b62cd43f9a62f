<?php

// 5 %: autoload (classes that may or may not be installed), hash, json_encode, array_map with the name of a function.

declare(strict_types=1);

namespace Demo\Audit;

use Demo\Budget;

final class Trail
{
    private const EVENTS = ['ordered', 'paid', 'packed', 'sent'];

    public static function record(Budget $budget): void
    {
        $trail = new self();
        $budget->spend([$trail, 'append']);
    }

    public function append(): string
    {
        $seal = '';
        foreach (self::EVENTS as $event) {
            $entry = ['user' => 4711, 'event' => $event, 'sinks' => $this->sinks(), 'words' => array_map('strrev', self::EVENTS)];
            $seal = $this->seal($seal . json_encode($entry));
        }

        return $seal;
    }

    private function seal(string $entry): string
    {
        for ($round = 0; $round < 10; $round++) {
            $entry = hash('sha256', $entry);
        }

        return $entry;
    }

    /** @return list<string> the optional sinks that are installed; looking for one asks the autoloader */
    private function sinks(): array
    {
        return array_filter(['Syslog', 'Kafka', 'Mail'], static fn (string $sink): bool => class_exists("Demo\\Audit\\{$sink}Sink"));
    }
}
