<?php
// One process writes, and locks the database while it works; or each has its own.
$own = getenv('PROBLEM') !== 'has';
$child = pcntl_fork();
$db = new PDO('sqlite:' . ($own ? "own$child" : 'shared') . '.db');
$db->exec('PRAGMA busy_timeout = 5000; CREATE TABLE IF NOT EXISTS t (x)');
class Orders {
    public function __construct(private PDO $db) {}
    public function store(int $thinks) {
        $this->db->exec('BEGIN EXCLUSIVE');
        $until = hrtime(true) + $thinks * 1_000_000;
        while (hrtime(true) < $until) { $sum = ($sum ?? 0) + 1; }
        $this->db->exec('ROLLBACK');
    }
}
while (true) { (new Orders($db))->store($child ? 5 : 40); }
