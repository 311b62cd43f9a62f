<?php
// A controller that asks a repository for twenty rows and encodes them: short methods of namespaced classes.
namespace Shop;

class Articles {
    private array $known = [];
    public function byId(int $id): array {
        return $this->known[$id] ??= ['id' => $id, 'title' => "article $id"];
    }
}
class ListController {
    public function __construct(private Articles $articles) {}
    public function __invoke(int $from): string {
        $rows = [];
        for ($id = $from; $id < $from + 20; $id++) { $rows[] = $this->articles->byId($id % 200); }
        return json_encode($rows);
    }
}
$controller = new ListController(new Articles);
for ($from = 0;; $from++) { $controller($from); }
