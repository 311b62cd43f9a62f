//! The timelines in the tests of the page.
//!
//! Invariant: every call gives the same timeline, and none exceeds the bounds of `timeline.rs`.

use std::collections::HashMap;

use phpprof_profile::timeline::{
    MAX_MOMENTS, MAX_RECORDED, MAX_REQUESTS, MAX_ROWS, MAX_STEPS, Moment, RouteRow, Timeline,
    TimelineCell, TimelineNode, TimelineRequest, TreeFunction, VERSION, WorkerRow,
};

const MILLISECOND: i64 = 1_000_000;
const STEP: i64 = 250 * MILLISECOND;
const STEPS: usize = 120;
const WORKERS: usize = 8;
/// The number of recorded requests in the small timeline, the slowest ones.
pub const RECORDED: usize = 40;

/// Frames from the root: function, file, line.
type RouteStack = &'static [(&'static str, &'static str, u32)];

const MAIN: (&str, &str, u32) = ("{main}", "/srv/app/index.php", 12);
const LATER: (&str, &str, u32) = ("{main}", "/srv/app/index.php", 19);
const HANDLE: (&str, &str, u32) = (r"Shop\Kernel::handle", "/srv/app/src/Kernel.php", 31);
const CHECKOUT: (&str, &str, u32) = (r"Shop\Cart::checkout", "/srv/app/src/Cart.php", 31);
const TOTAL: (&str, &str, u32) = (r"Shop\Cart::total", "/srv/app/src/Cart.php", 44);
const RENDER: (&str, &str, u32) = (r"Shop\View::render", "/srv/app/src/View.php", 17);
const INTERNAL: &str = "<internal:standard>";

/// An action in a route's requests: stack, share of the time, whether the worker sleeps.
type RouteAction = (RouteStack, i64, bool);

const BUYS: &[RouteAction] = &[
    (&[MAIN, ("[compiling]", "", 0)], 3, false),
    (&[MAIN, HANDLE, ("session_start", INTERNAL, 0)], 7, true),
    (
        &[
            MAIN,
            HANDLE,
            CHECKOUT,
            TOTAL,
            (r"Shop\Product::price", "/srv/app/src/Product.php", 11),
        ],
        16,
        false,
    ),
    (
        &[
            MAIN,
            HANDLE,
            CHECKOUT,
            TOTAL,
            ("array_map", INTERNAL, 0),
            (
                "{closure:/srv/app/src/Cart.php:43}",
                "/srv/app/src/Cart.php",
                43,
            ),
        ],
        9,
        false,
    ),
    (
        &[
            MAIN,
            HANDLE,
            CHECKOUT,
            (r"Shop\Orders::store", "/srv/app/src/Orders.php", 62),
            ("PDO::exec", "<internal:pdo>", 0),
        ],
        28,
        true,
    ),
    (
        &[
            MAIN,
            HANDLE,
            CHECKOUT,
            (r"Shop\Mail::send", "/srv/app/src/Mail.php", 90),
            ("curl_exec", "<internal:curl>", 0),
        ],
        18,
        true,
    ),
    (&[MAIN, HANDLE, CHECKOUT], 2, false),
    (
        &[
            LATER,
            RENDER,
            ("preg_replace_callback", "<internal:pcre>", 0),
        ],
        12,
        false,
    ),
    (&[LATER, RENDER, ("[gc]", "", 0)], 5, false),
];
const SEARCHES: &[RouteAction] = &[
    (
        &[
            MAIN,
            HANDLE,
            (r"Shop\Search::find", "/srv/app/src/Search.php", 9),
            ("similar_text", INTERNAL, 0),
        ],
        64,
        false,
    ),
    (
        &[
            MAIN,
            HANDLE,
            (r"Shop\Search::find", "/srv/app/src/Search.php", 14),
            ("PDOStatement::execute", "<internal:pdo>", 0),
        ],
        21,
        true,
    ),
    (&[LATER, RENDER], 15, false),
];
const SHOWS: &[RouteAction] = &[
    (
        &[
            MAIN,
            HANDLE,
            (r"Shop\Product::show", "/srv/app/src/Product.php", 71),
            ("PDOStatement::execute", "<internal:pdo>", 0),
        ],
        40,
        true,
    ),
    (
        &[
            LATER,
            RENDER,
            (r"Shop\View::block", "/srv/app/src/View.php", 40),
        ],
        60,
        false,
    ),
];

/// Method, route, duration in milliseconds, frequency, actions.
const ROUTES: [(&str, &str, i64, u64, &[RouteAction]); 9] = [
    ("POST", "/cart/{id}/checkout", 620, 14, BUYS),
    ("GET", "/search", 240, 22, SEARCHES),
    ("GET", "/product/{id}", 60, 34, SHOWS),
    ("GET", "/", 30, 16, SHOWS),
    ("GET", "/category/{id}/page/{id}", 110, 8, SEARCHES),
    ("POST", "/login", 150, 3, BUYS),
    ("GET", "/account/orders/{id}/invoice.pdf", 900, 1, BUYS),
    ("GET", "", 45, 1, SHOWS),
    ("GET", "(other)", 40, 1, SHOWS),
];

/// A fixed series of pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// The call tree while it grows.
#[derive(Default)]
struct GrowingTree {
    functions: Vec<TreeFunction>,
    nodes: Vec<TimelineNode>,
    known: HashMap<(Option<u32>, u32, u32), u32>,
}

impl GrowingTree {
    fn function(&mut self, name: &str, file: &str) -> u32 {
        let function = TreeFunction {
            name: name.to_owned(),
            file: file.to_owned(),
        };
        let known = self.functions.iter().position(|other| *other == function);
        known.unwrap_or_else(|| {
            self.functions.push(function);
            self.functions.len() - 1
        }) as u32
    }

    fn node(&mut self, parent: Option<u32>, function: u32, line: u32) -> u32 {
        let next = self.nodes.len() as u32;
        *self
            .known
            .entry((parent, function, line))
            .or_insert_with(|| {
                self.nodes.push(TimelineNode {
                    parent,
                    function,
                    line,
                });
                next
            })
    }

    fn leaf(&mut self, stack: RouteStack) -> u32 {
        let mut at = None;
        for (name, file, line) in stack {
            let function = self.function(name, file);
            at = Some(self.node(at, function, *line));
        }
        at.unwrap()
    }
}

fn spread(cells: &mut [TimelineCell], (begin, end): (i64, i64), waits: bool, heap: u64) {
    for (index, cell) in cells.iter_mut().enumerate() {
        let from = index as i64 * STEP;
        let part = end.min(from + STEP) - begin.max(from);
        if part <= 0 {
            continue;
        }
        if waits {
            cell.waiting += part
        } else {
            cell.busy += part
        }
        cell.heap = cell.heap.max(heap);
    }
}

fn cells() -> Vec<TimelineCell> {
    let steps = 0..STEPS as u32;
    steps
        .map(|step| TimelineCell {
            step,
            ..TimelineCell::default()
        })
        .collect()
}

fn used(cells: Vec<TimelineCell>) -> Vec<TimelineCell> {
    let is_used = |cell: &TimelineCell| cell.busy > 0 || cell.waiting > 0;
    cells.into_iter().filter(is_used).collect()
}

/// Eight workers of two pods that serve a shop for half a minute. In the middle, its database is
/// slow.
pub fn shop_timeline() -> Timeline {
    let end = STEP * STEPS as i64;
    let mut dice = Dice(7);
    let mut tree = GrowingTree::default();
    let mut routes: Vec<_> = ROUTES.iter().map(|_| cells()).collect();
    let mut workers = Vec::new();
    let mut requests = Vec::new();
    for worker in 0..WORKERS {
        let pod = format!("web-7d9f5c6b8-x2x4{}", if worker < 4 { 'z' } else { 'k' });
        let pid = 8 + worker as i32;
        let mut row = cells();
        let mut now = -(dice.roll(900) as i64) * MILLISECOND;
        while now < end {
            let pick = dice.roll(100);
            let mut upto = 0;
            let route = ROUTES.iter().position(|route| {
                upto += route.3;
                pick < upto
            });
            let route = route.unwrap();
            let took = ROUTES[route].2 * MILLISECOND * (60 + dice.roll(90) as i64) / 100;
            let mut request = TimelineRequest {
                begin: now,
                pod: pod.clone(),
                pid,
                method: ROUTES[route].0.to_owned(),
                route: ROUTES[route].1.to_owned(),
                script: "index.php".to_owned(),
                trace_id: format!(
                    "{:016x}{:016x}",
                    dice.roll(u64::MAX >> 34) * 0x9E37_79B9,
                    dice.roll(1 << 30)
                ),
                peak_heap_bytes: (4 << 20) + dice.roll(9 << 20) + (took as u64 / 40),
                ..TimelineRequest::default()
            };
            let mut at = now;
            for (stack, share, waits) in ROUTES[route].4 {
                let is_slow = *waits && (11_000..17_000).contains(&(now / MILLISECOND));
                let last = (at + took * share / 100 * if is_slow { 4 } else { 1 }).min(end);
                let seen = (at.max(0), last);
                if seen.1 <= seen.0 {
                    at = at.max(last);
                    continue;
                }
                spread(&mut row, seen, *waits, request.peak_heap_bytes);
                spread(&mut routes[route], seen, *waits, request.peak_heap_bytes);
                request.wall_nanoseconds += seen.1 - seen.0;
                request.cpu_nanoseconds += if *waits { 0 } else { seen.1 - seen.0 };
                request.moments.push(Moment {
                    begin: seen.0 - now,
                    duration: seen.1 - seen.0,
                    node: tree.leaf(stack),
                    waits: *waits,
                });
                at = last;
            }
            request.end = at;
            request.is_unfinished = at == end;
            request.samples = (request.wall_nanoseconds / 10_101_010) as u64;
            requests.push(request);
            now = at + (2 + dice.roll(260) as i64) * MILLISECOND;
        }
        workers.push(WorkerRow {
            pod,
            pid,
            thread: 0,
            cells: used(row),
        });
    }
    requests.sort_by_key(|request| request.begin - request.end);
    for request in requests.iter_mut().skip(RECORDED) {
        request.moments.clear();
    }
    let names = ROUTES.iter().zip(routes);
    Timeline {
        version: VERSION,
        began_unix_nanoseconds: 1_790_000_000_000_000_000,
        duration_nanoseconds: end,
        step_nanoseconds: STEP,
        workers,
        routes: names
            .map(|(route, cells)| RouteRow {
                route: route.1.to_owned(),
                cells: used(cells),
            })
            .collect(),
        requests,
        functions: tree.functions,
        nodes: tree.nodes,
        ..Timeline::default()
    }
}

/// A timeline at its bounds, with stacks of a hundred frames.
pub fn largest_timeline() -> Timeline {
    let mut dice = Dice(11);
    let mut tree = GrowingTree::default();
    let functions: Vec<_> = (0..400)
        .map(|index| {
            tree.function(
                &format!(
                    r"App\Module{}\Class{}::method{index}",
                    index % 12,
                    index % 60
                ),
                "/srv/app/src/Module.php",
            )
        })
        .collect();
    let leaves: Vec<u32> = (0..400_usize)
        .map(|chain| {
            let mut at = None;
            for depth in 0..100_usize {
                // Many stacks share the first frames.
                let pick = (depth * 7 + (chain >> (8_usize.saturating_sub(depth / 6)))) % 400;
                at = Some(tree.node(at, functions[pick], depth as u32 + 1));
            }
            at.unwrap()
        })
        .collect();
    let row = |dice: &mut Dice| -> Vec<TimelineCell> {
        let steps = 0..MAX_STEPS as u32;
        steps
            .map(|step| TimelineCell {
                step,
                busy: dice.roll(25) as i64 * MILLISECOND,
                waiting: dice.roll(25) as i64 * MILLISECOND,
                heap: (8 << 20) + dice.roll(8 << 20),
            })
            .collect()
    };
    let request = |dice: &mut Dice, index: usize| {
        let length = (MAX_REQUESTS - index) as i64 * 10 * MILLISECOND;
        let moments = if index < MAX_RECORDED { MAX_MOMENTS } else { 0 };
        let each = length / MAX_MOMENTS as i64;
        let begin = dice.roll(10_000) as i64 * MILLISECOND;
        TimelineRequest {
            begin,
            end: begin + length,
            pod: format!("web-7d9f5c6b8-{:05}", index % 50),
            pid: 100 + (index % 64) as i32,
            method: "GET".to_owned(),
            route: format!("/route/{}", index % 64),
            script: "public/index.php".to_owned(),
            trace_id: format!("{index:032x}"),
            samples: length as u64 / 10_101_010,
            wall_nanoseconds: length,
            cpu_nanoseconds: length / 3,
            peak_heap_bytes: 9 << 20,
            moments: (0..moments)
                .map(|moment| Moment {
                    begin: moment as i64 * each,
                    duration: each,
                    node: leaves[dice.roll(400) as usize],
                    waits: moment % 3 == 0,
                })
                .collect(),
            ..TimelineRequest::default()
        }
    };
    let requests = (0..MAX_REQUESTS)
        .map(|index| request(&mut dice, index))
        .collect();
    Timeline {
        version: VERSION,
        began_unix_nanoseconds: 1_790_000_000_000_000_000,
        duration_nanoseconds: 50 * MILLISECOND * MAX_STEPS as i64,
        step_nanoseconds: 50 * MILLISECOND,
        workers: (0..MAX_ROWS)
            .map(|index| WorkerRow {
                pod: format!("web-7d9f5c6b8-{:05}", index % 50),
                pid: 100 + index as i32,
                thread: 0,
                cells: row(&mut dice),
            })
            .collect(),
        routes: (0..MAX_ROWS)
            .map(|index| RouteRow {
                route: format!("/route/{index}"),
                cells: row(&mut dice),
            })
            .collect(),
        requests,
        functions: tree.functions,
        nodes: tree.nodes,
        ..Timeline::default()
    }
}
