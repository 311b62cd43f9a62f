<?php
// A callback that rewrites the page, or one that looks at its first letter.
function rewrite(string $page) {
    $links = '';
    foreach (explode(' ', $page) as $word) { $links .= strrev($word) . ' '; }
    return $links;
}
function look(string $page) { return $page[0] === ' ' ? '' : $page; }
function page() {
    ob_start(getenv('PROBLEM') === 'has' ? 'rewrite' : 'look');
    for ($i = 0; $i < 5000; $i++) { echo 'word', $i, ' '; }
    ob_end_flush();
}
ob_start(fn () => '', 1 << 20);
while (true) { page(); ob_clean(); }
