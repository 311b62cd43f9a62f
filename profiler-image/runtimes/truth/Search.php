<?php

// 25 %: generators (one iterates another, one delegates to another), usort with a closure, internal string functions.

declare(strict_types=1);

final class Search
{
    private const SHELVES = [
        ['red running shoe', 'blue walking shoe', 'black leather boot'],
        ['red rain coat', 'grey winter coat', 'brown leather coat'],
    ];

    public function query(): array
    {
        $hits = [];
        foreach ($this->articles() as $title) {
            similar_text($title, 'red leather coat', $percent);
            $hits[] = [$title, $percent - levenshtein($title, 'red leather coat')];
        }
        usort($hits, static function (array $one, array $other): int {
            return $other[1] <=> $one[1];
        });

        return $hits;
    }

    private function articles(): Generator
    {
        foreach (self::SHELVES as $index => $shelf) {
            if ($index === 0) {
                yield from $this->shelf($shelf);
                continue;
            }
            foreach ($this->shelf($shelf) as $title) {
                yield $title;
            }
        }
    }

    private function shelf(array $titles): Generator
    {
        foreach ($titles as $title) {
            yield ucwords($title);
        }
    }
}
