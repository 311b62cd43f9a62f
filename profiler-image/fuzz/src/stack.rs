//! One stack: unwinding, the names of its frames, and the judgement of its edges.

use phpprof_zend::Layout;
use phpprof_zend::closure::Holder;
use phpprof_zend::enclosing::enclosing;
use phpprof_zend::function::{FunctionKey, HEAD, NamedFunction, ZendFunction};
use phpprof_zend::layouts::ROWS;
use phpprof_zend::memory::{END_OF_USER_SPACE, Memory};
use phpprof_zend::op::Op;
use phpprof_zend::phase::is_inside_include;
use phpprof_zend::site::{EdgeSide, Evidence, Site};
use phpprof_zend::unwind::{Copy, Frame, MAX_FRAMES, UnwindEnd, unwind};

use crate::image::FuzzImage;

/// The largest cost of a sample; the sampler caches names and proofs and so costs far less.
const READS: u64 = 4_000_000;
const BYTES: u64 = 1 << 30;
/// How much the sampler copies of a VM stack.
const MAX_COPY: u64 = 256 << 10;
/// Frames that are named in one run.
const MAX_NAMED: usize = 256;
/// Frames whose code is searched for in the functions of their callers, in one run.
const MAX_SEARCHED: usize = 8;

/// A stack as it was read, leaf first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadStack {
    /// Why unwinding ended.
    pub end: UnwindEnd,
    /// The names of the frames' functions, leaf first.
    pub names: Vec<String>,
    /// Their files, in the same order.
    pub files: Vec<String>,
    /// Whether each frame's call by the next is proven by its site alone.
    pub proven: Vec<bool>,
    /// The leaf is inside an include.
    pub includes: bool,
}

/// Reads the stack of the engine, or thread, with globals at these addresses.
pub fn read<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    executor_globals: u64,
    compiler_globals: u64,
) -> ReadStack {
    let row = &layout.executor_globals;
    let word = |offset: usize| {
        let address = executor_globals.wrapping_add(offset as u64);
        memory.word(address).unwrap_or(0)
    };
    let (base, start) = (word(row.vm_stack), word(row.current_execute_data));
    let used = start.saturating_sub(base).saturating_add(256).min(MAX_COPY);
    let mut copy = Copy::default();
    copy.base = base;
    copy.bytes = vec![0; usize::try_from(used).unwrap_or(0)];
    if memory.read(base, &mut copy.bytes).is_err() {
        copy.bytes.clear();
    }
    let mut frames = Vec::new();
    let end = unwind(memory, layout, &mut copy, start, &mut frames);
    assert!(frames.len() <= MAX_FRAMES);
    frames.truncate(MAX_NAMED);
    for call in frames.windows(2).take(MAX_SEARCHED) {
        search(memory, layout, &call[1], call[0].opline);
    }
    let functions: Vec<Option<NamedFunction>> = frames
        .iter()
        .map(|frame| function(memory, layout, frame))
        .collect();
    let closures = functions.iter().flatten();
    let closures = closures.filter(|named| named.function.is_unnamed_closure());
    for closure in closures.take(MAX_SEARCHED) {
        let key = closure.function.key;
        let of_class = key
            .scope
            .wrapping_add(layout.class_entry.function_table as u64);
        for table in [of_class, word(row.function_table)] {
            enclosing(memory, layout, table, &key);
        }
    }
    let sides: Vec<(&Frame, Option<&ZendFunction>)> = frames
        .iter()
        .zip(
            functions
                .iter()
                .map(|named| Some(&named.as_ref()?.function)),
        )
        .collect();
    let proven = sides.windows(2).map(|pair| match *pair {
        [
            (callee, Some(callee_function)),
            (caller, Some(caller_function)),
        ] => is_proven(&Site {
            memory,
            layout,
            copy: &copy,
            executor_globals,
            compiler_globals: Some(compiler_globals),
            frameless_functions: None,
            through: None,
            caller: side(caller, caller_function),
            callee: side(callee, callee_function),
        }),
        _ => false,
    });
    ReadStack {
        end,
        proven: proven.collect(),
        includes: frames
            .first()
            .is_some_and(|leaf| is_inside_include(memory, layout, leaf.opline)),
        names: texts(&functions, |function| function.name()),
        files: texts(&functions, |function| function.file()),
    }
}

/// Searches what a frame's function holds for an op: what is found contains it.
fn search<M: Memory + ?Sized>(memory: &M, layout: &Layout, holder: &Frame, opline: u64) {
    let Some(holder) = Holder::read(memory, layout, holder) else {
        return;
    };
    if let Some(key) = holder.find(memory, layout, opline, |_| true) {
        assert!(key.op_index(layout, opline).is_some());
        holder.has_stood(memory, layout, None, |_| true);
    }
}

fn side<'a>(frame: &'a Frame, function: &'a ZendFunction) -> EdgeSide<'a> {
    EdgeSide {
        frame,
        function,
        scope: function.key.scope,
        is_passing: !function.key.is_named(),
        has_own_opline: true,
    }
}

fn texts(functions: &[Option<NamedFunction>], of: impl Fn(&NamedFunction) -> &str) -> Vec<String> {
    let text = |function: &Option<NamedFunction>| function.as_ref().map_or("?", &of).to_owned();
    functions.iter().map(text).collect()
}

fn function<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    frame: &Frame,
) -> Option<NamedFunction> {
    let mut head = [0; HEAD];
    memory.read(frame.func, &mut head).ok()?;
    let key = FunctionKey::parse(layout, &head)?;
    if key.name == 0 && !key.is_user() {
        return None;
    }
    NamedFunction::resolve(memory, layout, key)
}

fn is_proven<M: Memory + ?Sized>(site: &Site<'_, M>) -> bool {
    let key = &site.caller.function.key;
    let opline = site.caller.frame.opline;
    if key.is_user() && key.op_index(site.layout, opline).is_none() {
        return false;
    }
    let op = key
        .is_user()
        .then(|| Op::read(site.memory, site.layout, opline));
    let evidence = match op {
        Some(None) => return false,
        Some(Some(op)) => site.judge(Some(&op)),
        None => site.judge(None),
    };
    match evidence {
        Evidence::Proven(check, _) => {
            !check.contradicted(site.copy, site.caller.frame, site.callee.frame)
        }
        Evidence::Open | Evidence::Refuted => false,
    }
}

/// The row and the stack of an image.
#[must_use]
pub fn of_image(input: &[u8]) -> Option<(&'static Layout, ReadStack)> {
    let image = FuzzImage::parse(input, READS, BYTES);
    let [row, executor_globals, compiler_globals] = image.words;
    // An engine's globals are always in user space.
    let [executor_globals, compiler_globals] =
        [executor_globals, compiler_globals].map(|address| address % END_OF_USER_SPACE);
    let row = usize::try_from(row % ROWS.len() as u64).ok()?;
    let layout = ROWS.get(row)?;
    let stack = read(&image, layout, executor_globals, compiler_globals);
    Some((layout, stack))
}

/// One run of the fuzzer.
pub fn run(input: &[u8]) {
    let _ = of_image(input);
}
