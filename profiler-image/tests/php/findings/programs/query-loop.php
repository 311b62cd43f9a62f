<?php
class Orders {
    private ?PDOStatement $find = null;
    public function __construct(private PDO $db) {}
    public function find(int $id) {
        $statement = $this->db->prepare('SELECT * FROM t WHERE id = ?');
        $statement->execute([$id]);
        return $statement->fetch();
    }
    public function findWithOne(int $id) {
        $this->find ??= $this->db->prepare('SELECT * FROM t WHERE id = ?');
        $this->find->execute([$id]);
        return $this->find->fetch();
    }
}
$db = new PDO('sqlite::memory:');
$db->exec('CREATE TABLE t (id INTEGER PRIMARY KEY, x)');
for ($i = 0; $i < 100; $i++) { $db->exec("INSERT INTO t (x) VALUES ('order $i')"); }
function page(Orders $orders, bool $has) {
    for ($i = 0; $i < 100; $i++) { $has ? $orders->find($i) : $orders->findWithOne($i); }
}
$orders = new Orders($db);
while (true) { page($orders, getenv('PROBLEM') === 'has'); }
