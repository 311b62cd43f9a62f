//! Reads a `zend_function`: its code, and its name for users.
//!
//! The address of a `zend_function` identifies nothing for long: a closure's is a copy inside its
//! object, and memory is reused. [`FunctionKey`] does: the code block, the name and the class.
//! Invariant: a [`ZendFunction`] only comes from consistent bytes, and its texts match their stored
//! hashes.

use std::fmt::Write as _;

use crate::layouts::Layout;
use crate::memory::{END_OF_USER_SPACE, Memory, byte_at, half_at, word_at};
use crate::short::Short;
use crate::shown::{MAX_NAME, MAX_PATH, show};
use crate::text::{ClassName, ZendString, c_string};

const ZEND_INTERNAL_FUNCTION: u8 = 1;
const ZEND_USER_FUNCTION: u8 = 2;
const ZEND_EVAL_CODE: u8 = 4;
/// The most ops of an op_array; a larger number is garbage.
const MAX_OPS: u32 = 1 << 22;
/// The longest name of an extension.
const MAX_EXTENSION: usize = 64;
/// What the name of a closure has in addition to its file, with the longest line.
const MARKS: usize = "{closure::4294967295}".len();
/// The size of the part of a `zend_function` that [`FunctionKey::parse`] reads, for every row.
pub const HEAD: usize = 184;

/// Identifies a function's code under its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FunctionKey {
    /// `op_array.opcodes`, or the handler of an internal function.
    pub code: u64,
    /// The number of ops; 0 for an internal function.
    pub last: u32,
    /// `zend_function.type`: 1 internal, 2 user code, 4 eval()'d code (Zend/zend_compile.h).
    pub kind: u8,
    /// `ZEND_ACC_CLOSURE` and similar flags: the struct does not outlive the call or the object.
    pub passing: bool,
    /// The address of the name's `zend_string`; 0 for a script's top level.
    pub name: u64,
    /// The address of the `zend_class_entry`; 0 without a class.
    pub scope: u64,
    /// The address of the file name's `zend_string`; 0 for an internal function.
    pub filename: u64,
    /// The line of the declaration; 0 for an internal function.
    pub line_start: u32,
    /// The address of the `zend_module_entry` of an internal function's extension; 0 if it has
    /// none.
    pub module: u64,
}

impl FunctionKey {
    /// The identity of a script's code, from its `op_array`. A script that has ended leaves all of
    /// that but its first word, which the allocator then uses. `None` if its code does not contain
    /// the opline of the script's frame.
    #[must_use]
    pub fn of_script(layout: &Layout, head: &[u8; HEAD], opline: u64) -> Option<Self> {
        let mut head = *head;
        let row = &layout.function;
        head.get_mut(row.fn_flags..row.fn_flags + 4)?.fill(0);
        *head.get_mut(row.type_)? = ZEND_USER_FUNCTION;
        Self::parse(layout, &head)
            .filter(|key| key.name == 0 && key.op_index(layout, opline).is_some())
    }

    /// Reads the identity from the first [`HEAD`] bytes of a `zend_function`; `None` if they are
    /// inconsistent.
    #[must_use]
    pub fn parse(layout: &Layout, head: &[u8]) -> Option<Self> {
        let row = &layout.function;
        let kind = byte_at(head, row.type_);
        let flags = half_at(head, row.fn_flags);
        let user = matches!(kind, ZEND_USER_FUNCTION | ZEND_EVAL_CODE);
        if !user && kind != ZEND_INTERNAL_FUNCTION {
            return None;
        }
        let key = Self {
            code: word_at(head, if user { row.opcodes } else { row.handler }),
            last: if user { half_at(head, row.last) } else { 0 },
            kind,
            passing: flags & row.passing_flags != 0,
            name: word_at(head, row.function_name),
            // The top level of a file that is included from a method inherits the method's scope,
            // which is not its own.
            scope: if word_at(head, row.function_name) == 0 {
                0
            } else {
                word_at(head, row.scope)
            },
            filename: if user { word_at(head, row.filename) } else { 0 },
            line_start: if user {
                half_at(head, row.line_start)
            } else {
                0
            },
            module: if user { 0 } else { word_at(head, row.module) },
        };
        // The bottom frame of a fiber (`zend_fiber_function`) has neither a handler nor a name.
        let sound = (key.code != 0 || (!user && key.name == 0))
            && [key.code, key.name, key.scope, key.filename]
                .iter()
                .all(|&address| address < END_OF_USER_SPACE)
            && key.name.is_multiple_of(8)
            && key.scope.is_multiple_of(8)
            && (!user
                || (key.code.is_multiple_of(8)
                    && key.filename != 0
                    && (1..=MAX_OPS).contains(&key.last)));
        sound.then_some(key)
    }

    /// Whether this is user code, which has ops and lines.
    #[must_use]
    pub fn is_user(&self) -> bool {
        self.kind != ZEND_INTERNAL_FUNCTION
    }

    /// Whether this is named and in a table of the engine, not in an object or only for one call.
    #[must_use]
    pub fn is_named(&self) -> bool {
        !self.passing && self.name != 0
    }

    /// Whether this is an engine's function without a name: the bottom of a fiber. Users do not see
    /// it.
    #[must_use]
    pub fn is_nameless(&self) -> bool {
        self.name == 0 && !self.is_user()
    }

    /// Whether this is eval()'d code's top level.
    #[must_use]
    pub fn is_eval(&self) -> bool {
        self.kind == ZEND_EVAL_CODE
    }

    /// Whether this is the top level of a script, an included file or eval()'d code.
    #[must_use]
    pub fn is_top_level(&self) -> bool {
        self.name == 0 && self.is_user()
    }

    /// The addresses of the `zend_string`s whose texts tell whether the key still means the same, 0
    /// for none. From 8.1 on, code such as eval()'d code is freed together with its file name after
    /// its call (`destroy_op_array`, Zend/zend_opcode.c), and the next one's file name takes its
    /// address.
    #[must_use]
    pub fn anchors(&self) -> [u64; 2] {
        let may_be_freed = self.is_user() && !self.is_named();
        [self.name, if may_be_freed { self.filename } else { 0 }]
    }

    /// The index of an opline in this code, or `None` if it is outside the code.
    #[must_use]
    pub fn op_index(&self, layout: &Layout, opline: u64) -> Option<u32> {
        let size = layout.zend_op.sizeof as u64;
        let offset = opline.checked_sub(self.code)?;
        let index = u32::try_from(offset / size).ok()?;
        (self.is_user() && offset % size == 0 && index < self.last).then_some(index)
    }
}

/// A name as the engine stores it.
pub type ShortName = Short<u8, 40>;

/// A function as call sites know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZendFunction {
    /// Its identity.
    pub key: FunctionKey,
    /// The name as the engine stores it, for comparing with a call site's literal.
    pub function_name: ShortName,
    /// The class's name as the engine stores it; empty without a class.
    pub class: ShortName,
    /// Hashes of the texts at [`FunctionKey::anchors`]: [`ZendString::fingerprint`], 0 for none.
    pub fingerprints: [u64; 2],
    /// Whether each of its texts, also that of its file, agrees with its stored hash
    /// ([`ZendString::is_checked`]).
    pub is_checked: bool,
}

impl ZendFunction {
    /// Whether each request has its own class for this code: then its key has no class.
    #[must_use]
    pub fn is_relinked(&self) -> bool {
        self.key.scope == 0 && !self.class.is_empty()
    }

    /// Whether this is a closure without the name of the function around it: up to 8.3, all are.
    #[must_use]
    pub fn is_unnamed_closure(&self) -> bool {
        is_unnamed_closure(&self.key, &self.function_name)
    }

    /// The name of a function of the engine or an extension that is not a method.
    #[must_use]
    pub fn internal_name(&self) -> Option<&str> {
        let is_plain = !self.key.is_user() && self.class.is_empty();
        std::str::from_utf8(&self.function_name)
            .ok()
            .filter(|name| is_plain && !name.is_empty())
    }
}

/// A function with its texts for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFunction {
    /// As call sites know it.
    pub function: ZendFunction,
    /// The name and then the file.
    shown: String,
    name_ends: usize,
}

impl NamedFunction {
    /// One of the engine's own frames without a name ([`FunctionKey::is_nameless`]).
    #[must_use]
    pub fn nameless(key: FunctionKey) -> Self {
        Self {
            function: ZendFunction {
                key,
                function_name: ShortName::default(),
                class: ShortName::default(),
                fingerprints: [0, 0],
                is_checked: true,
            },
            shown: String::new(),
            name_ends: 0,
        }
    }

    /// The name for users: `App\Cart::total`, `{closure:App\Cart::total():12}`, before 8.4
    /// `{closure:/srv/a.php:12}`, `include /srv/b.php`; empty for one without a name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.shown.get(..self.name_ends).unwrap_or_default()
    }

    /// `<internal:standard>` for a function of the engine or an extension, `<internal>` if the
    /// extension is unknown.
    #[must_use]
    pub fn file(&self) -> &str {
        self.shown.get(self.name_ends..).unwrap_or_default()
    }

    /// Reads the texts of `key`; `None` if they are inconsistent.
    pub fn resolve<M: Memory + ?Sized>(
        memory: &M,
        layout: &Layout,
        key: FunctionKey,
    ) -> Option<Self> {
        let string = |address: u64| ZendString::read(memory, layout, address);
        let file = if key.is_user() {
            string(key.filename)?
        } else {
            ZendString::of(b"")
        };
        let function_name = if key.name == 0 {
            None
        } else {
            Some(string(key.name)?)
        };
        let class = if key.scope == 0 {
            None
        } else {
            Some(ClassName::read(memory, layout, key.scope)?)
        };
        let [_, freed_file] = key.anchors();
        // Enough for most, so that one allocation is enough.
        let class_length = class.as_ref().map_or(0, |class| {
            class.stored.bytes.len().min(MAX_NAME) + "::".len()
        });
        let file_length = file.bytes.len().max(MAX_EXTENSION / 2);
        let name_length = match &function_name {
            Some(name) if !is_unnamed_closure(&key, &name.bytes) => name.bytes.len().min(MAX_NAME),
            // Its name has its file.
            _ => file_length + MARKS,
        };
        let mut shown = String::with_capacity(class_length + name_length + file_length);
        show_name(
            &key,
            function_name.as_ref(),
            class.as_ref(),
            &file,
            &mut shown,
        );
        let name_ends = shown.len();
        if key.is_user() {
            file.show_path(&mut shown);
        } else {
            show_extension(memory, layout, key.module, &mut shown);
        }
        let is_checked = file.is_checked
            && function_name.as_ref().is_none_or(|name| name.is_checked)
            && class.as_ref().is_none_or(|class| class.stored.is_checked);
        let function = ZendFunction {
            key,
            fingerprints: [
                function_name
                    .as_ref()
                    .map_or(0, |name| name.fingerprint(layout)),
                if freed_file == 0 {
                    0
                } else {
                    file.fingerprint(layout)
                },
            ],
            function_name: function_name
                .map_or_else(ShortName::default, |name| name.bytes[..].into()),
            class: class.map_or_else(ShortName::default, |class| class.stored.bytes[..].into()),
            is_checked,
        };
        Some(Self {
            function,
            shown,
            name_ends,
        })
    }
}

/// Appends the replacement for the file of an internal function: its extension, by the name for
/// `extension_loaded`.
fn show_extension<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    module: u64,
    shown: &mut String,
) {
    let name = (module != 0)
        .then(|| module.checked_add(layout.module_entry.name as u64))
        .flatten()
        .and_then(|at| memory.word(at).ok())
        .and_then(|name| c_string(memory, name, MAX_EXTENSION))
        .filter(|name| !name.is_empty() && !name.contains(char::is_control));
    shown.push_str("<internal");
    if let Some(name) = name {
        shown.extend([":", &name]);
    }
    shown.push('>');
}

/// Up to 8.3 each closure has the name `{closure}` after its namespace. It is shown by its file and
/// line.
fn is_unnamed_closure(key: &FunctionKey, name: &[u8]) -> bool {
    key.is_user() && name.ends_with(b"{closure}")
}

/// From 8.4 on a closure's name has the function or file around it, and its line
/// (`zend_begin_func_decl`, Zend/zend_compile.c): `{closure:Shop\Cart::total():12}`. So has that of
/// a partial application, from 8.6 on: `{closure:pfa:Shop\Cart::total():12}`.
fn is_named_closure(key: &FunctionKey, name: &[u8]) -> bool {
    key.is_user() && name.starts_with(b"{closure:")
}

/// Appends such a name. The class in it may be anonymous, and then has a NUL, and `$N` at its end
/// ([`ClassName::show`]).
fn show_closure(name: &ZendString, shown: &mut String) {
    let mut parts = name.bytes.split(|&byte| byte == 0);
    let first = parts.next().unwrap_or_default();
    if first.len() == name.bytes.len() {
        return show(&name.bytes, name.length, MAX_PATH, shown);
    }
    show(first, first.len() as u64, MAX_PATH, shown);
    for part in parts {
        shown.push(':');
        for piece in without_number(part) {
            show(piece, piece.len() as u64, MAX_PATH, shown);
        }
    }
}

/// A text without `$N` at the end of an anonymous class's name.
fn without_number(text: &[u8]) -> [&[u8]; 2] {
    let marks = (0..text.len()).filter(|&at| text.get(at) == Some(&b'$'));
    let mut ends = marks.filter_map(|at| {
        let (place, number) = text.split_at(at);
        let digits = number.iter().skip(1);
        let length = digits.take_while(|byte| byte.is_ascii_hexdigit()).count();
        let rest = number.get(1 + length..)?;
        (length > 0 && rest.starts_with(b"::")).then_some([place, rest])
    });
    ends.next().unwrap_or([text, &[]])
}

/// Appends a function's name.
fn show_name(
    key: &FunctionKey,
    name: Option<&ZendString>,
    class: Option<&ClassName>,
    file: &ZendString,
    shown: &mut String,
) {
    match (name, class) {
        (None, _) if !key.is_user() => {}
        (None, _) => {
            let how = if key.is_eval() { "eval " } else { "include " };
            shown.push_str(how);
            file.show_path(shown);
        }
        (Some(name), _) if is_named_closure(key, &name.bytes) => show_closure(name, shown),
        (Some(name), _) if is_unnamed_closure(key, &name.bytes) => {
            shown.push_str("{closure:");
            file.show_path(shown);
            // Writing to a string cannot fail.
            let _ = write!(shown, ":{}}}", key.line_start);
        }
        (Some(name), class) => {
            if let Some(class) = class {
                class.show(shown);
                shown.push_str("::");
            }
            name.show_name(shown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: u8) -> FunctionKey {
        FunctionKey {
            code: 0x1000,
            last: 4,
            kind,
            filename: 8,
            line_start: 12,
            ..FunctionKey::default()
        }
    }

    fn check(kind: u8, name: Option<&[u8]>, class: Option<&[u8]>, expected: &str) {
        let name = name.map(ZendString::of);
        let class = class.map(|stored| ClassName {
            stored: ZendString::of(stored),
            line: 0,
        });
        let mut shown = String::new();
        let file = ZendString::of(b"/a.php");
        show_name(&key(kind), name.as_ref(), class.as_ref(), &file, &mut shown);
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_function_is_shown_as_people_know_it() {
        check(2, Some(b"App\\Cart"), None, "App\\Cart");
        check(2, Some(b"total"), Some(b"App\\Cart"), "App\\Cart::total");
        check(
            2,
            Some(b"App\\{closure}"),
            Some(b"App\\Cart"),
            "{closure:/a.php:12}",
        );
        check(
            2,
            Some(b"{closure:App\\Cart::total():12}"),
            Some(b"App\\Cart"),
            "{closure:App\\Cart::total():12}",
        );
        check(2, Some(b"{closure:/a.php:3}"), None, "{closure:/a.php:3}");
        check(
            2,
            Some(b"{closure:{closure:App\\f():3}:4}"),
            None,
            "{closure:{closure:App\\f():3}:4}",
        );
        check(
            2,
            Some(b"{closure:pfa:App\\f():3}"),
            None,
            "{closure:pfa:App\\f():3}",
        );
        check(
            2,
            Some(b"{closure:class@anonymous\0/srv/$1/a.php:3$1f::f():5}"),
            Some(b"class@anonymous\0/srv/$1/a.php:3$1f"),
            "{closure:class@anonymous:/srv/$1/a.php:3::f():5}",
        );
        check(2, None, None, "include /a.php");
        check(4, None, None, "eval /a.php");
        check(
            1,
            Some(b"next"),
            Some(b"ArrayIterator"),
            "ArrayIterator::next",
        );
        check(1, None, None, "");
    }

    #[test]
    fn an_opline_counts_only_inside_its_code() {
        let layout = crate::layouts::layout_of(crate::layouts::Machine::X86_64, 8, 2).unwrap();
        let key = key(2);
        assert_eq!(key.op_index(layout, 0x1000), Some(0));
        assert_eq!(key.op_index(layout, 0x1060), Some(3));
        assert_eq!(key.op_index(layout, 0x1080), None);
        assert_eq!(key.op_index(layout, 0x1008), None);
        assert_eq!(key.op_index(layout, 0xff0), None);
    }
}
