<?php

// How well a title answers a query: a plain function of the namespace, and mostly time in internal functions.

declare(strict_types=1);

namespace Demo\Search;

function rank(string $title, string $query): float
{
    $title = strtolower($title);
    similar_text($title, $query, $percent);
    $distance = levenshtein($title, $query);

    return $percent - $distance;
}
