<?php
// Four workers at a time, each of which works for 200 ms and ends.
function work(): void { for ($until = hrtime(true) + 200_000_000; hrtime(true) < $until;) { rows(100); } }
function rows(int $count): void { for ($row = 0; $row < $count; $row++) { row($row); } }
function row(int $row): string { return md5("row $row"); }
for ($workers = 0;; $workers++) {
    if ($workers >= 4) { pcntl_wait($status); }
    if (pcntl_fork() === 0) { work(); exit; }
}
