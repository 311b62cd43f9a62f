<?php
// Renders small pages without end, or for `seconds`, and writes every 20 ms the time (of the monotonic clock) and the number of rendered
// pages. With `excimer` it switches that profiler, at this rate, every 0.3 s; a request with `tideways` is profiled.
parse_str($argv[1] ?? $_SERVER['QUERY_STRING'], $asked);

function escaped(string $text): string { return htmlspecialchars($text); }
function price(int $cents): string { return number_format($cents / 100, 2); }
function row(array $item): string { return '<li>' . escaped($item['name']) . ' ' . price($item['cents']) . "</li>\n"; }
function page(array $items): string
{
    $rows = '';
    foreach ($items as $item) {
        $rows .= row($item);
    }
    return '<ul>' . strtolower($rows) . '</ul>';
}

$items = [];
for ($i = 0; $i < 8; $i++) {
    $items[] = ['name' => "Shelf & board $i", 'cents' => 1234 * $i];
}
if (isset($asked['excimer'])) {
    $profiler = new ExcimerProfiler();
    $profiler->setPeriod(1 / $asked['excimer']);
    $profiler->setEventType(EXCIMER_REAL);
    // Nothing is kept, like in a service, which sends it away.
    $profiler->setFlushCallback(function ($log) {}, 1000);
}
if (isset($asked['tideways'])) {
    tideways_xhprof_enable();
}
// The function calls of a page, with that of hrtime().
echo "calls 43\n";
$now = $began = $wrote = hrtime(true);
$end = isset($asked['seconds']) ? $now + $asked['seconds'] * 1_000_000_000 : PHP_INT_MAX;
$switch = isset($profiler) ? $now : PHP_INT_MAX;
for ($on = false, $pages = 0; $now < $end; $now = hrtime(true)) {
    page($items);
    $pages++;
    if ($now - $wrote >= 20_000_000) {
        echo $now, ' ', $pages, "\n";
        [$wrote, $pages] = [$now, 0];
        if ($now >= $switch) {
            $on = !$on;
            $on ? $profiler->start() : $profiler->stop();
            echo $now, $on ? " on\n" : " off\n";
            $switch = $now + 300_000_000;
        }
    }
}
