<?php

// 25 %: generators (one delegates to another), usort with a closure, internal string functions, a plain function.

declare(strict_types=1);

namespace Demo\Search;

use Demo\Budget;
use Generator;

require_once __DIR__ . '/rank.php';

final class Catalogue
{
    private const SHELVES = [
        'shoes' => ['red running shoe', 'blue walking shoe', 'black leather boot', 'white tennis shoe'],
        'hats' => ['red felt hat', 'green rain hat', 'yellow straw hat', 'black bowler hat'],
        'coats' => ['red rain coat', 'grey winter coat', 'brown leather coat', 'blue denim jacket'],
    ];

    private const QUERIES = ['red leather shoe', 'rain coat'];

    public function search(Budget $budget): void
    {
        $budget->spend(fn (): array => array_map($this->query(...), self::QUERIES));
    }

    /** @return list<array{string, float}> */
    private function query(string $words): array
    {
        $hits = [];
        foreach ($this->articles() as $title) {
            $hits[] = [$title, rank($title, $words)];
        }
        usort($hits, static fn (array $one, array $other): int => $other[1] <=> $one[1]);

        return $hits;
    }

    private function articles(): Generator
    {
        foreach (self::SHELVES as $shelf) {
            yield from $this->shelf($shelf);
        }
    }

    private function shelf(array $titles): Generator
    {
        foreach ($titles as $title) {
            yield ucwords($title);
        }
    }
}
