<?php
// Filters by name and priority, as WordPress has them: two closures for each of a hundred names.
class Filters {
    private array $filters = [];
    public function add(string $name, int $priority, callable $filter): void { $this->filters[$name][$priority][] = $filter; }
    public function apply(string $name, mixed $value): mixed {
        $filters = $this->filters[$name] ?? [];
        ksort($filters);
        foreach ($filters as $same) {
            foreach ($same as $filter) { $value = $filter($value); }
        }
        return $value;
    }
}
$filters = new Filters;
for ($number = 0; $number < 100; $number++) {
    $filters->add("filter$number", 20, fn ($value) => $value * 2);
    $filters->add("filter$number", 10, fn ($value) => $value + 1);
}
for ($number = 0;; $number++) { $filters->apply('filter' . $number % 100, 1); }
