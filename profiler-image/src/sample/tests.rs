//! Whole samples of a small engine, which is in the memory of the test itself and does not move.

mod bounds;
mod engine_calls;
mod first_look;
mod hostile;
mod idle;
mod left;
mod pages;
mod told;
mod variables;

use std::sync::Arc;

use phpprof_zend::Memory as _;
use phpprof_zend::engine::{Engine, Module};
use phpprof_zend::jit::JitBuffer;
use phpprof_zend::layouts::{Machine, layout_of};
use phpprof_zend::phase::PhaseGlobals;
use phpprof_zend::site;
use phpprof_zend::testing::{BLOCK, EngineImage, IS_NULL, IS_STRING, NewOp, UserFunction};
use phpprof_zend::unwind::frame_at;

use super::*;
use crate::read::globals::Globals;
use crate::stack::edges::EdgeKnowledge;
use crate::stack::stand::Stand;
use crate::target::process::Process;

/// Where a frame has the result of its op.
const RESULT: u32 = 0x60;

// Zend/zend_vm_opcodes.h.
const INIT_FCALL: u8 = 61;
const RETURN: u8 = 62;
const DO_UCALL: u8 = 130;
const FRAMELESS_ICALL_2: u8 = 205;
/// The index of the called function in `zend_flf_functions`.
const NUMBER: u32 = 3;

/// An engine of PHP 8.4, in which `{main}` calls `found`.
pub(crate) struct Scene {
    image: EngineImage,
    main: UserFunction,
    /// The address of its frame.
    main_frame: u64,
    /// The address of the pointer `zend_flf_functions`.
    table: u64,
    jit: Option<JitBuffer>,
    /// `sapi_globals`, once a request is served.
    sapi_globals: Option<u64>,
    phase_globals: PhaseGlobals,
}

/// The offsets of a request's method, path with query, and script from its `fcgi_request`.
const TEXTS: [u64; 3] = [0x2800, 0x2900, 0x2a00];

impl Scene {
    fn new() -> Self {
        let mut image = EngineImage::in_own_memory(layout_of(Machine::X86_64, 8, 4).unwrap());
        let table = image.block();
        let init = NewOp {
            opcode: INIT_FCALL,
            op2: Some("found"),
            ..NewOp::default()
        };
        let main = image.user(None, &[init, DO_UCALL.into(), RETURN.into()]);
        let main_frame = image.call(main.func, main.op(1), image.layout.call_info.top);
        Self {
            image,
            main,
            main_frame,
            table,
            jit: None,
            sapi_globals: None,
            phase_globals: PhaseGlobals::default(),
        }
    }

    /// Makes php-fpm serve this request; an earlier one is overwritten.
    pub(crate) fn serve(&mut self, method: &str, uri: &str, script: &str) {
        let image = &mut self.image;
        let globals = *self.sapi_globals.get_or_insert_with(|| {
            let globals = image.block();
            // Blocks follow each other.
            let context = image.block();
            (1..0x30).for_each(|_| _ = image.block());
            image.put_word(globals, 0, context);
            globals
        });
        let context = image.word(globals).unwrap();
        let [method_at, uri_at, script_at] = TEXTS.map(|offset| context + offset);
        for (at, text) in [(method_at, method), (uri_at, uri), (script_at, script)] {
            image.put(at, &[0; 0x100]);
            image.put(at, text.as_bytes());
        }
        let row = &image.layout.fcgi_request;
        let sapi = &image.layout.sapi_globals;
        image.put_word(globals, sapi.request_method, method_at);
        image.put_word(globals, sapi.path_translated, script_at);
        image.put_half(context, row.has_env, 1);
        // The hashes of the two names, as `FCGI_HASH_FUNC` computes them.
        for (index, name, hash, value, length) in [
            (0, "REQUEST_METHOD", 1890, method_at, method.len()),
            (1, "REQUEST_URI", 1955, uri_at, uri.len()),
        ] {
            let bucket = context + 0x2b00 + index * 0x80;
            let name_at = bucket + 0x40;
            image.put(name_at, name.as_bytes());
            image.put_half(bucket, row.hash_value, hash);
            image.put_half(bucket, row.var_len, name.len() as u32);
            image.put_word(bucket, row.var, name_at);
            image.put_half(bucket, row.val_len, length as u32);
            image.put_word(bucket, row.val, value);
            let slot = context + row.env as u64 + u64::from(hash % 128) * 8;
            image.put_word(slot, 0, bucket);
        }
    }

    /// Sets `SG(global_request_time)`.
    pub(crate) fn set_request_time(&mut self, seconds: f64) {
        let offset = self.image.layout.sapi_globals.global_request_time;
        let at = self.sapi_globals.unwrap() + offset;
        self.image.put_word(at, 0, seconds.to_bits());
    }

    /// `found` is the top frame, at an op that calls `function` without a frame and has this result
    /// by now.
    pub(crate) fn frameless(function: &str, result: u8) -> Self {
        let mut scene = Self::new();
        let image = &mut scene.image;
        let internal = image.internal(function, 0);
        let functions = image.block();
        image.put_word(scene.table, 0, functions);
        image.put_word(functions, NUMBER as usize * 8, internal);
        let call = NewOp {
            opcode: FRAMELESS_ICALL_2,
            result: RESULT,
            extended_value: NUMBER,
            ..NewOp::default()
        };
        let found = image.user(Some("found"), &[call]);
        let frame = image.call(found.func, found.op(0), 0);
        image.put_zval(frame + u64::from(RESULT), 0, result);
        scene
    }

    /// Sets an internal function as the handler of PHP's errors.
    pub(crate) fn with_error_handler(mut self, function: &str) -> Self {
        let image = &mut self.image;
        let (globals, layout) = (image.executor_globals, image.layout);
        let handler = image.internal(function, 0);
        let (functions, name) = (image.block(), image.string(function));
        let row = &layout.executor_globals;
        image.put_table(functions, &[(function, handler)]);
        image.put_word(globals, row.function_table, functions);
        image.put_zval(globals + row.user_error_handler as u64, name, IS_STRING);
        self
    }

    /// The top frame was not called by `found`, which is at an op that pushes no frame: samples end
    /// there.
    pub(crate) fn cut() -> Self {
        let mut scene = Self::frameless("implode", IS_NULL);
        scene.call("text", 0);
        scene
    }

    /// `found` is the top frame.
    fn calling() -> Self {
        let mut scene = Self::new();
        scene.call("found", 0);
        scene
    }

    /// Sets a JIT buffer up, with this many bytes of compiled code in it.
    fn with_jit(mut self, code: u64) -> Self {
        let start = self.image.block();
        let end = start + BLOCK;
        self.image.put_word(end - 16, 0, start + 16 + code);
        self.image.put_word(end - 8, 0, start + 16);
        self.jit = Some(JitBuffer { start, end });
        self
    }

    /// Calls another function from the top frame.
    fn call(&mut self, name: &str, call_info: u32) {
        let function = self.image.user(Some(name), &[DO_UCALL.into()]);
        self.image.call(function.func, function.op(0), call_info);
    }

    pub(crate) fn process(&self) -> Process {
        let engine = Engine {
            layout: self.image.layout,
            version: "8.4.0".to_owned(),
            sapi: "fpm-fcgi".to_owned(),
            executor_globals: self.image.executor_globals,
            fingerprint_at: self.image.executor_globals,
            request_time: self
                .sapi_globals
                .map(|at| at + self.image.layout.sapi_globals.global_request_time),
            phase_globals: self.phase_globals,
            frameless_functions: Some(self.table),
            module_registry: 0,
            execute_hook: None,
            threads: None,
            module: Module {
                base: self.image.executor_globals,
                path: "php".to_owned(),
            },
            build_id: String::new(),
        };
        Process::of_this_test(engine, self.jit)
    }

    fn worker(&self) -> Worker {
        Worker::new(Arc::new(self.process()))
    }

    /// Takes one sample: the names of its stack, root first, and whether all of it is proven.
    fn sampled(&self) -> (Vec<String>, bool) {
        let mut sampler = StackSampler::new();
        let TurnOutcome::Sample(SampledStack { stack, is_open, .. }) =
            sampler.sample(&mut self.worker(), 1)
        else {
            panic!("no sample")
        };
        let is_proven = stack.ending == Ending::Whole && !is_open;
        (names(&sampler, stack.path), is_proven)
    }

    fn check(&self, expected: &[&str]) {
        let (names, is_proven) = self.sampled();
        assert_eq!(names, expected);
        assert!(is_proven);
    }
}

/// The functions of a path, root first.
fn names(sampler: &StackSampler, path: PathId) -> Vec<String> {
    let mut lines = Vec::new();
    let paths = sampler.tree.settle(&sampler.edges);
    paths.lines(path, &mut lines);
    let name = |&(id, _): &(_, _)| sampler.functions.names.get(id).name.to_string();
    lines.iter().map(name).collect()
}

#[test]
fn frameless_call_is_leaf_while_result_is_null() {
    Scene::frameless("strpos", IS_NULL).check(&["{main}", "found", "strpos"]);
}

/// The caller's opline does not change until the next op begins.
#[test]
fn frameless_call_with_result_is_over() {
    Scene::frameless("strpos", 0).check(&["{main}", "found"]);
    Scene::frameless("strpos", IS_STRING).check(&["{main}", "found"]);
}

/// Code of the JIT does not save the opline of an op without a call: it may be that of any earlier
/// call.
#[test]
fn jit_has_no_frameless_leaf() {
    let scene = || Scene::frameless("strpos", IS_NULL);
    scene().with_jit(32).check(&["{main}", "found"]);
    // Debian's 8.4 sets a buffer up for a JIT that is disabled.
    scene().with_jit(0).check(&["{main}", "found", "strpos"]);
}

#[test]
fn unknown_frameless_number_adds_no_leaf() {
    let mut scene = Scene::frameless("strpos", IS_NULL);
    let functions = scene.image.block();
    scene.image.put_word(scene.table, 0, functions);
    scene.check(&["{main}", "found"]);
}

/// The engine calls a callback with ZEND_CALL_TOP. No site names it, but here nothing moves.
#[test]
fn callback_stands_above_its_frameless_function() {
    for code in [0, 32] {
        let mut scene = Scene::frameless("implode", IS_NULL).with_jit(code);
        scene.call("text", scene.image.layout.call_info.top);
        scene.check(&["{main}", "found", "implode", "text"]);
    }
}

/// A frame of an ordinary call was not called by an op that pushes none: the two are from different
/// moments.
#[test]
fn other_calls_have_no_frameless_caller() {
    let (names, is_proven) = Scene::cut().sampled();
    assert_eq!(
        (&names[..], is_proven),
        (&["{main}".to_owned(), "found".to_owned()][..], false)
    );
}

/// A busy read of the scene's worker, followed at its first moment.
fn followed(
    scene: &Scene,
    sampler: &mut StackSampler,
    worker: &mut Worker,
) -> (Vec<Globals>, Trace) {
    let Ok(Reading::Busy { tops, .. }) = worker.reader.read() else {
        panic!("no frame")
    };
    let (mut trace, mut climb) = (Trace::default(), Climb::default());
    sampler.standing.begin(true);
    sampler.follow_one(worker, &tops, MomentIndex::FIRST, &mut trace, &mut climb, 1);
    assert_eq!(trace.frames.len(), 2, "{}", scene.main_frame);
    (tops.to_vec(), trace)
}

/// Words of two moments can show a call that the program does not make. It is in a path since then,
/// and stays open.
#[test]
fn open_call_needs_looks_next_to_its_moment() {
    let mut scene = Scene::frameless("implode", IS_NULL);
    scene.call("text", scene.image.layout.call_info.top);
    let (mut sampler, mut worker) = (StackSampler::new(), scene.worker());
    assert!(matches!(
        sampler.sample(&mut worker, 1),
        TurnOutcome::Sample(_)
    ));
    // The functions are known, the calls are not.
    (sampler.edges, sampler.tree) = (Edges::default(), CallTree::default());
    let Ok(Reading::Busy { tops, .. }) = worker.reader.read() else {
        panic!("no frame")
    };
    let is_whole = |sampler: &mut StackSampler, worker: &mut Worker| {
        let (mut trace, mut climb) = (Trace::default(), Climb::default());
        // No site names the callee, and nothing may be looked at again.
        sampler.standing.begin(false);
        sampler.follow_one(worker, &tops, MomentIndex::FIRST, &mut trace, &mut climb, 1);
        (climb.is_whole, climb.open)
    };
    let (shown, open) = is_whole(&mut sampler, &mut worker);
    assert_eq!((shown, open.len()), (true, 1));
    let copy = &mut worker.reader.copy;
    let func = usize::try_from(tops[0].current_execute_data - copy.hot).unwrap()
        + scene.image.layout.execute_data.func;
    copy.looks[1][func..func + 8].copy_from_slice(&scene.main.func.to_le_bytes());
    assert!(!is_whole(&mut sampler, &mut worker).0);
    sampler.edges.prove_open(open[0]);
    assert!(is_whole(&mut sampler, &mut worker).0);
}

/// Looks of one read can be in step with a loop of the JIT's code: then words of two calls look
/// like those of one.
#[test]
fn jit_words_count_while_their_call_stands() {
    for (code, is_fast, expected) in [(0, true, true), (32, false, true), (32, true, false)] {
        let mut scene = Scene::calling().with_jit(code);
        let (mut sampler, mut worker) = (StackSampler::new(), scene.worker());
        let (_, mut trace) = followed(&scene, &mut sampler, &mut worker);
        trace.is_fast = is_fast;
        for words in [site::Words::Frames, site::Words::Cache] {
            assert!(sampler.is_one_moment(&worker, &trace, 0, words), "{code}");
        }
        // The call ends: further calls of the kernel show its caller alone.
        let main = scene.main_frame;
        scene.image.put_top(main);
        sampler.standing.begin(true);
        let is_one = sampler.is_one_moment(&worker, &trace, 0, site::Words::Frames);
        assert_eq!(is_one, expected, "{code}, {is_fast}");
        // Words of code say the same at any time.
        assert!(sampler.is_one_moment(&worker, &trace, 0, site::Words::Code));
    }
}

/// Running a file takes longer than two looks, which show no mixture of two such calls.
#[test]
fn file_runs_if_both_next_looks_show_it() {
    let scene = Scene::calling();
    let (mut sampler, mut worker) = (StackSampler::new(), scene.worker());
    let (_, mut trace) = followed(&scene, &mut sampler, &mut worker);
    trace.stood = 1;
    sampler.standing.begin(false);
    for (together, words, expected) in [
        (2, site::Words::Script, true),
        (1, site::Words::Script, false),
        (2, site::Words::Frames, false),
    ] {
        trace.together = together;
        let is_one = sampler.is_one_moment(&worker, &trace, 0, words);
        assert_eq!(is_one, expected, "{together}, {words:?}");
    }
    // Below the looks, it was read once.
    (trace.together, worker.reader.copy.hot) = (2, trace.frames[0].address);
    assert!(!sampler.is_one_moment(&worker, &trace, 0, site::Words::Script));
}

#[test]
fn call_below_the_looks_is_looked_at_again() {
    let scene = Scene::calling();
    let (mut sampler, mut worker) = (StackSampler::new(), scene.worker());
    let (_, mut trace) = followed(&scene, &mut sampler, &mut worker);
    let above = Stand { below: 2, above: 3 };
    (trace.stands, trace.stands_since) = (Some(above), Some(above));
    sampler.standing.begin(true);
    assert!(sampler.stand(&mut worker, &mut trace, 0, 1));
    // Where nothing stood, looking again tells nothing.
    trace.stands_since = Some(Stand::default());
    assert!(!sampler.stand(&mut worker, &mut trace, 0, 1));
}

#[test]
fn call_stands_below_a_replaced_frame() {
    let scene = Scene::calling();
    let (mut sampler, mut worker) = (StackSampler::new(), scene.worker());
    let (_, mut trace) = followed(&scene, &mut sampler, &mut worker);
    (trace.ids[0], trace.stands_since) = (None, None);
    sampler.standing.begin(true);
    assert!(sampler.stand(&mut worker, &mut trace, 1, 1));
    assert!(!sampler.stand(&mut worker, &mut trace, 0, 1));
}

#[test]
fn read_asks_a_bounded_number_of_sites() {
    let scene = Scene::calling();
    let (mut sampler, mut worker) = (StackSampler::new(), scene.worker());
    let (tops, trace) = followed(&scene, &mut sampler, &mut worker);
    let edge = sampler
        .edge_at(&trace, 0, None, FunctionNames::UNSTABLE)
        .unwrap();
    let asks = (0..1000).take_while(|_| sampler.ask(&worker, &trace, 0, edge).is_some());
    assert!((64..256).contains(&asks.count()));
    // The next read may ask again.
    let (mut again, mut climb) = (Trace::default(), Climb::default());
    sampler.follow(&mut worker, &tops, &mut again, &mut climb, 1);
    assert!(sampler.ask(&worker, &trace, 0, edge).is_some());
}

#[test]
fn open_sample_learns_from_the_newest_moment() {
    let scene = Scene::calling();
    let (mut sampler, mut worker) = (StackSampler::new(), scene.worker());
    let (tops, trace) = followed(&scene, &mut sampler, &mut worker);
    let names = [1, 0].map(|index| {
        sampler
            .functions
            .name(trace.ids[index].unwrap(), index == 1)
    });
    let edge = sampler.edge_at(&trace, 0, Some((names[0], 1)), names[1]);
    // Nothing is known, and the moment before the newest one shows nothing.
    (sampler.edges, sampler.tree) = (Edges::default(), CallTree::default());
    let newest = tops.len() - 1;
    worker.reader.copy.looks[..newest]
        .iter_mut()
        .for_each(|look| look.fill(0));
    let before = sampler.quality;
    let (mut trace, mut climb) = (Trace::default(), Climb::default());
    sampler.learn(&mut worker, &tops, &mut trace, &mut climb, 2);
    let known = sampler.edges.known(&edge.unwrap());
    assert!(matches!(known, Some(EdgeKnowledge::Proven(_))), "{known:?}");
    assert_eq!(sampler.quality, before, "it is no sample");
}

/// The two frames need not be of one moment: the code names the callee whenever they were read.
#[test]
fn call_proven_while_asked_is_not_asked_again() {
    let scene = Scene::calling();
    let (mut sampler, mut worker) = (StackSampler::new(), scene.worker());
    let (_, trace) = followed(&scene, &mut sampler, &mut worker);
    let [main, found] = [1, 0].map(|index| {
        let id = trace.ids[index].unwrap();
        sampler.functions.name(id, index == 1)
    });
    let edge = |op: u32| sampler.edge_at(&trace, 0, Some((main, op)), found).unwrap();
    // The first op of `{main}` calls nothing.
    let (calls, prepares) = (edge(1), edge(0));
    sampler.edges = Edges::default();
    assert!(!sampler.denies(&worker, &trace, 0, calls));
    let known = sampler.edges.known(&calls);
    assert!(matches!(known, Some(EdgeKnowledge::Proven(_))), "{known:?}");
    assert!(sampler.denies(&worker, &trace, 0, prepares));
}
