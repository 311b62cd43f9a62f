<?php

// 10 %: include (a template in a loop), preg_replace_callback with a method, a magic getter.

declare(strict_types=1);

namespace Demo\Render;

use Demo\Budget;

final class Page
{
    private const TEMPLATE = __DIR__ . '/../../templates/article.php';
    private const TEXT = '{title} is {state}: {count} "left" in <{shelf}>, {title} & more, as of {date}.';

    private int $rendered = 0;

    public function render(Budget $budget): void
    {
        $budget->spend(fn (): string => $this->article());
    }

    private function article(): string
    {
        ob_start();
        include self::TEMPLATE;

        return ob_get_clean();
    }

    private function filled(string $text): string
    {
        return preg_replace_callback('/{(\w+)}/', $this->placeholder(...), $text);
    }

    private function placeholder(array $match): string
    {
        return ucfirst($match[1]) . $this->{$match[1]};
    }

    public function __get(string $name): string
    {
        return str_pad((string) (++$this->rendered % 1000), 4, '0', STR_PAD_LEFT) . $name;
    }
}
