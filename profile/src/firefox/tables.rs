//! Strings, files, functions, frames and stacks, each once for all threads.
//!
//! Invariant: every index in a table exists, and a stack comes after its prefix.

use std::collections::HashMap;

use super::columns::SharedColumns;
use crate::stacks::{FunctionRef, StackStep};
use crate::waiting::{CPU, DISK, KINDS, STOPPED, is_php};

/// The function of a stack without frames.
const NO_FRAME: &str = "[unknown]";

/// Names and colours of the categories, in the order of [`FrameCategory`]. Grey is the default
/// one's, and transparent that of idle time.
pub(super) const CATEGORIES: [(&str, &str); 6] = [
    ("Other", "grey"),
    ("Idle", "transparent"),
    ("PHP", "yellow"),
    ("Internal function", "blue"),
    ("Engine", "green"),
    ("Waiting", "orange"),
];

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameCategory {
    /// A stack without frames.
    Other,
    /// Time between requests.
    Idle,
    /// PHP code.
    Php,
    /// A function of an extension.
    Internal,
    /// What the engine does besides: `[gc]`.
    Engine,
    /// A leaf that waits.
    Waiting,
}

impl FrameCategory {
    fn of(function: &FunctionRef<'_>) -> Self {
        match function.name {
            "[idle]" => FrameCategory::Idle,
            _ if is_php(function.file) => FrameCategory::Php,
            name if is_phase(name) => FrameCategory::Engine,
            _ => FrameCategory::Internal,
        }
    }
}

/// Whether a name is a phase of the engine.
pub(super) fn is_phase(name: &str) -> bool {
    name.starts_with('[') && name.ends_with(']')
}

/// The subcategories of [`FrameCategory::Waiting`]: what is waited for. The first one is for
/// anything else.
pub(super) fn kinds() -> impl Iterator<Item = &'static str> {
    let of_leaves = KINDS.iter().map(|(kind, _)| *kind);
    ["Other"]
        .into_iter()
        .chain(of_leaves)
        .chain([STOPPED, DISK, CPU])
}

/// A row of the frame table.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FrameKey {
    func: usize,
    line: i64,
    category: usize,
    subcategory: usize,
}

/// The shared tables while they grow.
pub(super) struct SharedTables<'a> {
    functions: &'a [FunctionRef<'a>],
    columns: SharedColumns,
    strings: HashMap<String, usize>,
    sources: HashMap<&'a str, usize>,
    /// By the number of the function; the last one is for stacks without frames.
    funcs: HashMap<Option<usize>, usize>,
    frames: HashMap<FrameKey, usize>,
    stacks: HashMap<(Option<usize>, usize), usize>,
}

impl<'a> SharedTables<'a> {
    pub fn new(functions: &'a [FunctionRef<'a>]) -> Self {
        SharedTables {
            functions,
            columns: SharedColumns::default(),
            strings: HashMap::new(),
            sources: HashMap::new(),
            funcs: HashMap::new(),
            frames: HashMap::new(),
            stacks: HashMap::new(),
        }
    }

    pub fn finish(self) -> SharedColumns {
        self.columns
    }

    pub fn string(&mut self, text: &str) -> usize {
        if let Some(known) = self.strings.get(text) {
            return *known;
        }
        let number = self.columns.string_array.len();
        self.columns.string_array.push(text.to_owned());
        self.strings.insert(text.to_owned(), number);
        number
    }

    /// The number of a stack, root first, whose leaf may wait for something.
    pub fn stack(&mut self, steps: &[StackStep], waits: Option<&str>) -> usize {
        let (mut prefix, last) = (None, steps.len().saturating_sub(1));
        for (depth, (function, line)) in steps.iter().enumerate() {
            let waits = waits.filter(|_| depth == last);
            prefix = Some(self.below(prefix, Some(*function), *line, waits));
        }
        match prefix {
            Some(stack) => stack,
            None => self.below(None, None, 0, waits),
        }
    }

    /// The stack of a frame below another stack.
    fn below(
        &mut self,
        prefix: Option<usize>,
        function: Option<usize>,
        line: i64,
        waits: Option<&str>,
    ) -> usize {
        let found = function.and_then(|number| self.functions.get(number));
        let category = match waits {
            Some(_) => FrameCategory::Waiting,
            None => found.map_or(FrameCategory::Other, FrameCategory::of),
        };
        let kind = |waits| kinds().position(|kind| kind == waits);
        let key = FrameKey {
            func: self.func(function),
            line,
            category: category as usize,
            subcategory: waits.and_then(kind).unwrap_or(0),
        };
        let frame = self.frame(key);
        if let Some(known) = self.stacks.get(&(prefix, frame)) {
            return *known;
        }
        let table = &mut self.columns.stack_table;
        let number = table.length;
        table.length += 1;
        table.frame.push(frame);
        table.prefix.push(prefix);
        self.stacks.insert((prefix, frame), number);
        number
    }

    fn frame(&mut self, key: FrameKey) -> usize {
        if let Some(known) = self.frames.get(&key) {
            return *known;
        }
        let table = &mut self.columns.frame_table;
        let number = table.length;
        table.length += 1;
        table.address.push(-1);
        table.inline_depth.push(0);
        table.category.push(key.category);
        table.subcategory.push(key.subcategory);
        table.func.push(key.func);
        table.native_symbol.push(None);
        table.inner_window_id.push(None);
        table.line.push(Some(key.line).filter(|line| *line > 0));
        table.column.push(None);
        self.frames.insert(key, number);
        number
    }

    fn func(&mut self, function: Option<usize>) -> usize {
        if let Some(known) = self.funcs.get(&function) {
            return *known;
        }
        let found = function.and_then(|number| self.functions.get(number));
        let name = self.string(found.map_or(NO_FRAME, |found| found.name));
        let file = found.map_or("", |found| found.file);
        let source = (!file.is_empty()).then(|| self.source(file));
        let line = found.map_or(0, |found| found.start_line);
        let table = &mut self.columns.func_table;
        let number = table.length;
        table.length += 1;
        table.name.push(name);
        table.is_js.push(false);
        table.relevant_for_js.push(false);
        table.resource.push(-1);
        table.source.push(source);
        table.line_number.push(Some(line).filter(|line| *line > 0));
        table.column_number.push(None);
        self.funcs.insert(function, number);
        number
    }

    fn source(&mut self, file: &'a str) -> usize {
        if let Some(known) = self.sources.get(file) {
            return *known;
        }
        let filename = self.string(file);
        let table = &mut self.columns.sources;
        let number = table.length;
        table.length += 1;
        table.uuid.push(None);
        table.filename.push(filename);
        self.sources.insert(file, number);
        number
    }
}
