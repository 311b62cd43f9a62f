<?php
// The stack that the seeds are recorded from: it sleeps at its end, so that nothing moves while it is read.
namespace Shop;

interface Priced { function price(): int; }
trait Loud { function say($x) { return self::deep($x); } }
class Cart implements Priced {
    use Loud { say as shout; }
    function price(): int { return $this->walk([3]); }
    function walk(array $items) { return \array_map(function ($item) { return $this->shout($item); }, $items)[0]; }
    static function deep($x) { foreach ((new Cart)->outer($x) as $y) { return $y; } }
    function outer($x) { yield from $this->inner($x); }
    function inner($x) { yield $this->missing($x); }
    function __call($name, $arguments) {
        return (new class extends Cart { function last($x) { return eval('return \Shop\wait($x);'); } })->last($arguments[0]);
    }
}
function wait($x) { \call_user_func('usleep', 600000000); return $x; }
(new Cart)->price();
