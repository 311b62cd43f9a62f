<?php

// The list of all articles, the cheapest first.

declare(strict_types=1);

namespace Shop;

final class Listing
{
    /** @var list<string> */
    private array $articles;

    public function page(): string
    {
        $this->articles = Prices::articles();
        usort($this->articles, $this->byPrice(...));

        return '<ol>' . implode('', array_map($this->row(...), $this->articles)) . '</ol>';
    }

    private function byPrice(string $one, string $other): int
    {
        return Prices::of($one) <=> Prices::of($other);
    }

    private function row(string $article): string
    {
        $price = $this->amount(Prices::of($article));

        return sprintf("<li>%s: %s (see also: %s)\n", $this->title($article), $price, $this->title($this->similar($article)));
    }

    /** The other article whose name is most like this one's. */
    private function similar(string $article): string
    {
        $best = '';
        $least = PHP_INT_MAX;
        foreach ($this->articles as $other) {
            $distance = levenshtein($article, $other);
            if ($other !== $article && $distance < $least) {
                [$best, $least] = [$other, $distance];
            }
        }

        return $best;
    }

    private function title(string $article): string
    {
        return htmlspecialchars(ucwords(str_replace('-', ' ', $article)));
    }

    private function amount(int $cents): string
    {
        return number_format($cents / 100, 2);
    }
}
