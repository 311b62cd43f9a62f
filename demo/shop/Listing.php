<?php

// The list of all articles, the cheapest first.

declare(strict_types=1);

namespace Shop;

final class Listing
{
    public function page(): string
    {
        $articles = Prices::articles();
        usort($articles, $this->byPrice(...));

        return '<ol>' . implode('', array_map($this->row(...), $articles)) . '</ol>';
    }

    private function byPrice(string $one, string $other): int
    {
        return Prices::of($one) <=> Prices::of($other);
    }

    private function row(string $article): string
    {
        return sprintf("<li>%s: %s\n", $this->title($article), $this->amount(Prices::of($article)));
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
