//! The list of the scenes. Invariant: what is expected was written by hand, from the script.

use super::scenes::{Scene, Server};

const CLI: Server = Server::CommandLine { opcache: false };
const CACHED: Server = Server::CommandLine { opcache: true };

const PLAIN: Scene = Scene {
    name: "",
    server: CLI,
    code: "",
    settings: &[],
    stack: "",
    labels: &[],
    finding: None,
    memory_limit: 128,
    since: 704,
    until: u32::MAX,
};

/// All of them.
pub const SCENES: &[Scene] = &[
    Scene {
        name: "frames/calls",
        code: r#"
interface Priced { function price(); }
trait Loud { function shout($x) { return self::deep($x); } }
class Cart implements Priced { use Loud;
    function price() { return $this->walk([3]); }
    function walk($items) { return array_map(function ($item) { return $this->shout($item); }, $items); }
    static function deep($x) { return (new Cart)->missing($x); }
    function __call($name, $arguments) { return Till::absent($arguments); }
}
class Till {
    static function __callStatic($name, $arguments) { $till = new Till; return $till($arguments); }
    function __invoke($x) { return call_user_func('named', $x); }
}
function named($x) { return eval('return stand();'); }
(new Cart)->price();"#,
        stack: "{main};Cart::price;Cart::walk;array_map;{closure:main.php:24};Cart::shout;Cart::deep;Cart::__call;Till::__callStatic;Till::__invoke;named;eval main.php(32) : eval()'d code;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "frames/calls-cached",
        server: CACHED,
        code: r#"
class Shop { static function open() { return usort_by(); } }
function usort_by() { $list = [2, 1]; usort($list, 'compare'); return $list; }
function compare($one, $two) { return call_user_func_array(new Part, [$one]); }
class Part { function __invoke($x) { return (include __DIR__ . '/function.php')(); } }
Shop::open();"#,
        stack: "{main};Shop::open;usort_by;usort;compare;Part::__invoke;{closure:function.php:3};stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "frames/include",
        code: "function load() { include __DIR__ . '/part.php'; } load();",
        stack: "{main};load;include part.php;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "frames/preloaded",
        server: CACHED,
        code: "Preloaded::work();",
        settings: &[
            "opcache.preload=/srv/preloaded.php",
            "opcache.preload_user=root",
        ],
        stack: "{main};Preloaded::work;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "frames/recursion",
        code: "function down($left) { return $left ? down($left - 1) + 1 : stand(); } down(399);",
        stack: "{main};down*400;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "frames/fiber",
        code: r#"
function inner() { Fiber::suspend(); stand(); }
function outer() { $fiber = new Fiber('inner'); $fiber->start(); Fiber::suspend(); $fiber->resume(); }
$fiber = new Fiber('outer'); $fiber->start(); $fiber->resume();"#,
        stack: "{main};Fiber::resume;outer;Fiber::resume;inner;stand;sleep",
        since: 801,
        ..PLAIN
    },
    Scene {
        name: "frames/delegates",
        code: r#"
function gen($depth) { if ($depth > 0) { yield from gen($depth - 1); } else { stand(); yield 1; } }
function consume($depth) { foreach (gen($depth) as $value); }
consume(26);"#,
        stack: "{main};consume;gen*27;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "frames/delegates-cached",
        server: CACHED,
        code: r#"
function gen($depth) { if ($depth > 0) { yield from gen($depth - 1); } else { stand(); yield 1; } }
function consume($depth) { foreach (gen($depth) as $value); }
consume(100);"#,
        stack: "{main};consume;gen*101;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "frames/shared-delegate",
        code: r#"
function inner() { yield 1; yield 2; yield 3; stand(); yield 4; }
function middle($shared) { yield from $shared; }
function one($shared) { yield from middle($shared); }
function two($shared) { yield from middle($shared); }
function shares() { $shared = inner(); $a = one($shared); $b = two($shared); $a->current(); $b->current(); $a->next(); $b->next(); uses($b); }
function uses($two) { $two->next(); }
shares();"#,
        stack: "{main};shares;uses;Generator::next;two;middle;inner;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "frames/pipeline",
        code: r#"
function source() { yield 1; stand(); yield 2; }
function stage($source) { foreach ($source as $value) { yield $value; } }
function filter($source) { foreach ($source as $value) { yield $value; } }
function pipeline() { $end = source(); for ($i = 0; $i < 7; $i++) { $end = stage($end); } foreach (filter($end) as $value); }
pipeline();"#,
        stack: "{main};pipeline;filter;stage*7;source;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "frames/delegates-in-fiber",
        code: r#"
function deep($depth) { if ($depth) { yield from deep($depth - 1); } else { Fiber::suspend(); stand(); yield 1; } }
function in_fiber() { foreach (deep(5) as $value); }
function fibers() { $fiber = new Fiber('in_fiber'); $fiber->start(); $fiber->resume(); }
fibers();"#,
        stack: "{main};fibers;Fiber::resume;in_fiber;deep*6;stand;sleep",
        since: 801,
        ..PLAIN
    },
    Scene {
        name: "calls/magic",
        code: r#"
class Magic {
    function __get($name) { return isset($this->other); }
    function __isset($name) { unset($this->third); return false; }
    function __unset($name) { $this->fourth = 1; }
    function __set($name, $value) { return strlen($this); }
    function __toString() { $copy = clone $this; return ''; }
    function __clone() { return new Made; }
}
class Made { function __construct() { $made = new Ended; $made = null; } }
class Ended { function __destruct() { stand(); } }
$magic = new Magic; $magic->first;"#,
        stack: "{main};Magic::__get;Magic::__isset;Magic::__unset;Magic::__set;Magic::__toString;Magic::__clone;Made::__construct;Ended::__destruct;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "calls/array-access",
        server: CACHED,
        code: r#"
#[AllowDynamicProperties]
class Rows implements ArrayAccess, IteratorAggregate, Countable {
    #[ReturnTypeWillChange]
    function offsetGet($at) { return isset($this['other']); }
    #[ReturnTypeWillChange]
    function offsetExists($at) { unset($this['third']); return true; }
    #[ReturnTypeWillChange]
    function offsetUnset($at) { $this['fourth'] = 1; }
    #[ReturnTypeWillChange]
    function offsetSet($at, $value) { return count($this); }
    #[ReturnTypeWillChange]
    function count() { foreach ($this as $row); return 1; }
    #[ReturnTypeWillChange]
    function getIterator() { return new One; }
}
class One implements Iterator {
    #[ReturnTypeWillChange]
    function current() { stand(); return 1; }
    #[ReturnTypeWillChange]
    function key() { return 0; }
    #[ReturnTypeWillChange]
    function next() { }
    #[ReturnTypeWillChange]
    function rewind() { }
    #[ReturnTypeWillChange]
    function valid() { return true; }
}
$rows = new Rows; $rows['first'];"#,
        stack: "{main};Rows::offsetGet;Rows::offsetExists;Rows::offsetUnset;Rows::offsetSet;Rows::count;One::current;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "phases/collector",
        code: r#"
class Ring { public $self; function __construct() { $this->self = $this; } function __destruct() { stand(); } }
function collect() { new Ring; gc_collect_cycles(); }
collect();"#,
        stack: "{main};collect;gc_collect_cycles;[gc];Ring::__destruct;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "phases/collector-by-itself",
        code: r#"
class Node { public $self; function __construct() { $this->self = $this; } function __destruct() { static $count = 0; if (++$count == 9000) { stand(); } } }
function nodes() { for ($i = 0; $i < 10001; $i++) { new Node; } }
nodes();"#,
        stack: "{main};nodes;[gc];Node::__destruct;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "phases/collector-and-inner-destructor",
        code: r#"
class Outer { public $self; function __construct() { $this->self = $this; } function __destruct() { inner(); } }
class Inner { function __destruct() { stand(); } }
function pass($temporary) { return $temporary; }
function inner() { $inner = new Inner; pass($inner); unset($inner); }
function collect() { gc_disable(); new Outer; gc_collect_cycles(); }
collect();"#,
        stack: "{main};collect;gc_collect_cycles;[gc];Outer::__destruct;inner;Inner::__destruct;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "phases/collector-closes-generator",
        code: r#"
function closes() { try { $own = yield; yield; } finally { stand(); } }
function generators() { $generator = closes(); $generator->current(); $generator->send($generator); }
function collect() { generators(); gc_collect_cycles(); }
collect();"#,
        stack: "{main};collect;gc_collect_cycles;[gc];closes;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "phases/autoload",
        code: r#"
function load($class) { stand(); }
function loads() { new Absent; }
spl_autoload_register('load');
loads();"#,
        stack: "{main};loads;[autoload];load;stand;sleep",
        since: 800,
        until: 805,
        ..PLAIN
    },
    Scene {
        name: "phases/autoload-cached",
        server: CACHED,
        code: r#"
class Loader { static function load($class) { stand(); } }
class Base { static function make() { return class_exists('Absent'); } }
spl_autoload_register('Loader::load');
Base::make();"#,
        stack: "{main};Base::make;class_exists;[autoload];Loader::load;stand;sleep",
        since: 800,
        until: 805,
        ..PLAIN
    },
    // 8.6 has no `EG(in_autoload)`: its autoloaders have their callers, and no phase.
    Scene {
        name: "phases/autoload-without-phase",
        code: r#"
function load($class) { stand(); }
function loads() { new Absent; }
spl_autoload_register('load');
loads();"#,
        stack: "{main};loads;load;stand;sleep",
        since: 806,
        ..PLAIN
    },
    // Up to 7.4 the engine calls a function that calls the autoloader.
    Scene {
        name: "phases/autoload-by-function",
        code: r#"
function load($class) { stand(); }
function loads() { new Absent; }
spl_autoload_register('load');
loads();"#,
        stack: "{main};loads;spl_autoload_call;load;stand;sleep",
        until: 704,
        ..PLAIN
    },
    Scene {
        name: "phases/shutdown-function",
        code: "function afterwards() { stand(); } register_shutdown_function('afterwards');",
        stack: "[shutdown];afterwards;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "phases/last-destructor",
        code: "class Last { function __destruct() { stand(); } } $last = new Last;",
        stack: "[shutdown];Last::__destruct;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "phases/output-at-end",
        code: "function output($text) { stand(); return $text; } ob_start('output'); echo 'x';",
        stack: "[shutdown];output;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "phases/session-at-end",
        code: r#"
class Session implements SessionHandlerInterface {
    #[ReturnTypeWillChange]
    function open($path, $name) { return true; }
    #[ReturnTypeWillChange]
    function close() { return true; }
    #[ReturnTypeWillChange]
    function read($id) { return ''; }
    #[ReturnTypeWillChange]
    function write($id, $data) { stand(); return true; }
    #[ReturnTypeWillChange]
    function destroy($id) { return true; }
    #[ReturnTypeWillChange]
    function gc($lifetime) { return 0; }
    function create_sid() { return 'x'; }
    function validateId($id) { return true; }
}
ini_set('session.use_cookies', '0');
session_set_save_handler(new Session, false);
session_id('x'); session_cache_limiter(''); session_start();"#,
        stack: "[shutdown];Session::write;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "phases/exception-handler",
        code: "function handler($exception) { stand(); } set_exception_handler('handler'); throw new Exception;",
        stack: "handler;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "phases/error-handler",
        code: r#"
function failed() { stand(); return true; }
function warns() { $none = []; return $none['x']; }
set_error_handler('failed'); warns();"#,
        stack: "{main};warns;failed;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "phases/output-buffer",
        code: r#"
function buffered($text) { stand(); return ''; }
function sends() { ob_start('buffered', 2); echo 'xxxx'; }
sends();"#,
        stack: "{main};sends;buffered;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "phases/stream-wrapper",
        code: r#"
class Text { public $context; function stream_open($path, $mode, $options, &$opened) { stand(); return true; } }
function includes() { include 'text://x'; }
stream_wrapper_register('text', 'Text'); includes();"#,
        stack: "{main};includes;Text::stream_open;stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "phases/tick",
        code: r#"
function ticked() { stand(); }
register_tick_function('ticked');
declare(ticks=1) { $tick = 1; }"#,
        stack: "{main};ticked;stand;sleep",
        // 8.6.0RC3 calls no tick function here.
        until: 805,
        ..PLAIN
    },
    Scene {
        name: "phases/idle",
        server: Server::FpmAfterwards,
        code: "truth();",
        stack: "[idle]",
        ..PLAIN
    },
    Scene {
        name: "opcache/scripts",
        server: CACHED,
        code: r#"
for ($number = 0; $number < 40; $number++) {
    file_put_contents("/srv/part$number.inc", "<?php \$sum = $number + 1;");
    include "/srv/part$number.inc";
}
chdir('/srv'); include './part7.inc'; (include 'function.php')();"#,
        stack: "{main};{closure:function.php:3};stand;sleep",
        ..PLAIN
    },
    Scene {
        name: "heap/held",
        code: r#"
ini_set('memory_limit', '62M');
function build() { $kept = []; for ($i = 0; $i < 200; $i++) { $kept[] = str_repeat('x', 100000); } return $kept; }
$kept = build(); $more = str_repeat('y', 20000000); $more = null; stand();"#,
        stack: "{main};stand;sleep",
        memory_limit: 62,
        ..PLAIN
    },
    Scene {
        name: "requests/item",
        server: Server::Fpm,
        code: "function serve() { stand(); } serve();",
        stack: "{main};serve;stand;sleep",
        labels: &[
            ("method", "POST"),
            ("route", "/item/{uuid}/{id}"),
            ("script", "srv/main.php"),
            ("trace_id", "0af7651916cd43dd8448eb211c80319c"),
            ("span_id", "b7ad6b7169203331"),
        ],
        ..PLAIN
    },
    Scene {
        name: "findings/sleep",
        server: Server::Fpm,
        code: "function naps() { truth(); sleep(3600); } naps();",
        stack: "{main};naps;sleep",
        finding: Some("sleep"),
        ..PLAIN
    },
    Scene {
        name: "findings/waiting-lock",
        server: Server::Fpm,
        code: r#"
$first = fopen('/srv/lock', 'c'); flock($first, LOCK_EX);
function locks() { $second = fopen('/srv/lock', 'c'); truth(); flock($second, LOCK_EX); }
locks();"#,
        stack: "{main};locks;flock",
        finding: Some("waiting-lock"),
        ..PLAIN
    },
];
