//! The sums of a heap's objects by class, and the classes' names.
//!
//! Invariant: at most [`MAX_TRACKED`] classes are told apart, and as many named as asked. A name is
//! used only if it has the hash that the engine stored with it, and one of the class's objects was
//! still in its place after the name was read: as long as it is, its class is, too.

use std::collections::HashMap;

use crate::closure::FUNCTION;
use crate::function::{FunctionKey, HEAD, NamedFunction};
use crate::layouts::Layout;
use crate::memory::{Memory, Piece, half_at};
use crate::text::ClassName;

use super::header::{HEADER, SeenObject, class_of};

/// How many classes and places of closures are told apart; objects of further ones are other.
pub const MAX_TRACKED: usize = 8192;
/// How many of all objects' classes have a name.
pub const MAX_NAMED: usize = 256;
/// `ZEND_INTERNAL_CLASS`, `ZEND_USER_CLASS` (Zend/zend_compile.h).
const INTERNAL: u8 = 1;
const USER: u8 = 2;

/// What kind of object a class has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// Any other.
    Plain,
    /// A closure: by the place where it is declared.
    Closure,
    /// A case of an enum.
    Enum,
    /// A generator.
    Generator,
    /// A fiber.
    Fiber,
}

/// A class, or a place where closures are declared, with its objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeapClass {
    /// What its objects are.
    pub kind: ObjectKind,
    /// The class's name, or the closure's, as profiles have them.
    pub name: String,
    /// `FILE:LINE` of a closure in PHP code.
    pub place: Option<String>,
    /// How many objects there are.
    pub instances: u64,
    /// The bytes of their blocks.
    pub bytes: u64,
    /// What the engine tells it apart by: `eval` may declare classes that look the same.
    pub keys: Vec<ClassKey>,
}

/// The objects of classes without a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OtherClasses {
    /// The classes, as far as they were told apart.
    pub classes: u64,
    /// Their objects.
    pub instances: u64,
    /// The bytes of their blocks.
    pub bytes: u64,
}

/// All classes.
pub struct NamedClasses {
    pub classes: Vec<HeapClass>,
    pub others: OtherClasses,
    /// Objects of other classes whose names could not be read or proven.
    pub unnamed: u64,
}

/// What tells classes apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClassKey {
    /// The address of the `zend_class_entry`.
    class: u64,
    /// Of a closure: its code, and its name's address; otherwise 0.
    code: u64,
    name: u64,
}

impl ClassKey {
    /// That of any other class.
    pub fn of(class: u64) -> Self {
        Self::of_closure(class, None)
    }

    /// That of a closure with this function, if it is known.
    pub fn of_closure(class: u64, function: Option<&FunctionKey>) -> Self {
        Self {
            class,
            code: function.map_or(0, |function| function.code),
            name: function.map_or(0, |function| function.name),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct ClassTotal {
    instances: u64,
    bytes: u64,
    /// The first and the last one: by either, the class's name can be proven.
    seen: [SeenObject; 2],
}

/// The sums so far.
#[derive(Debug, Default)]
pub struct ClassTotals {
    totals: HashMap<ClassKey, ClassTotal>,
    /// The class of closures, once it was seen.
    closure: Option<u64>,
    /// The objects for whose classes there was no room.
    others: OtherClasses,
}

impl ClassTotals {
    pub fn add(&mut self, key: ClassKey, object: SeenObject, bytes: u64) {
        let has_room = self.totals.len() < MAX_TRACKED;
        if let Some(total) = self.totals.get_mut(&key) {
            total.instances += 1;
            total.bytes = total.bytes.saturating_add(bytes);
            total.seen[1] = object;
        } else if has_room {
            let total = ClassTotal {
                instances: 1,
                bytes,
                seen: [object; 2],
            };
            self.totals.insert(key, total);
        } else {
            self.others.add(0, 1, bytes);
        }
    }

    /// Whether this is the class of closures. It is asked of the engine once for each class.
    pub fn is_closure<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        layout: &Layout,
        class: u64,
    ) -> bool {
        let is_known = self.totals.contains_key(&ClassKey::of(class));
        if self.closure.is_none() && !is_known && self.totals.len() < MAX_TRACKED {
            let found = EngineClass::read(memory, layout, class);
            let is_it = found.is_some_and(|it| it.kind() == ObjectKind::Closure);
            self.closure = is_it.then_some(class);
        }
        self.closure == Some(class)
    }

    /// Names the classes with the most bytes, at most this many.
    pub fn named<M: Memory + ?Sized>(
        self,
        memory: &M,
        layout: &Layout,
        most: usize,
    ) -> NamedClasses {
        let mut totals: Vec<_> = self.totals.into_iter().collect();
        totals.sort_unstable_by_key(|(_, total)| std::cmp::Reverse(total.bytes));
        let mut named = NamedClasses {
            classes: Vec::new(),
            others: self.others,
            unnamed: 0,
        };
        for (index, (key, total)) in totals.iter().enumerate() {
            let (instances, bytes) = (total.instances, total.bytes);
            if index >= most {
                named.others.add(1, instances, bytes);
                continue;
            }
            let names = total.seen.iter();
            let mut names = names.filter_map(|object| name_of(memory, layout, key, *object));
            match names.next() {
                Some(name) => named.add(name, instances, bytes),
                None => {
                    named.unnamed += instances;
                    named.others.add(1, instances, bytes);
                }
            }
        }
        named
            .classes
            .sort_by(|one, other| other.bytes.cmp(&one.bytes).then(one.name.cmp(&other.name)));
        named
    }
}

impl OtherClasses {
    fn add(&mut self, classes: u64, instances: u64, bytes: u64) {
        self.classes += classes;
        self.instances += instances;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl NamedClasses {
    /// Adds a class, or adds to the one that looks the same: `eval` may have declared it twice.
    fn add(&mut self, class: HeapClass, instances: u64, bytes: u64) {
        let is_same = |it: &&mut HeapClass| {
            (it.kind, &it.name, &it.place) == (class.kind, &class.name, &class.place)
        };
        match self.classes.iter_mut().find(is_same) {
            Some(same) => {
                same.keys.extend(class.keys);
                same.instances += instances;
                same.bytes = same.bytes.saturating_add(bytes);
            }
            None => self.classes.push(HeapClass {
                instances,
                bytes,
                ..class
            }),
        }
    }
}

/// A `zend_class_entry`.
pub struct EngineClass {
    name: ClassName,
    is_internal: bool,
    is_enum: bool,
}

impl EngineClass {
    /// Reads it; `None` if it is inconsistent.
    pub fn read<M: Memory + ?Sized>(memory: &M, layout: &Layout, class: u64) -> Option<Self> {
        let row = &layout.class_entry;
        let (mut kind, mut flags) = ([0], [0; 4]);
        let at = |offset: usize| class.checked_add(offset as u64);
        let mut pieces = [
            Piece {
                address: at(row.type_)?,
                bytes: &mut kind,
            },
            Piece {
                address: at(row.ce_flags)?,
                bytes: &mut flags,
            },
        ];
        memory.gather(&mut pieces).ok()?;
        let name = ClassName::read(memory, layout, class)?;
        let is_class = matches!(kind, [INTERNAL | USER]) && name.stored.is_checked;
        is_class.then_some(Self {
            name,
            is_internal: kind == [INTERNAL],
            is_enum: half_at(&flags, 0) & row.enumeration != 0,
        })
    }

    /// What its objects are.
    pub fn kind(&self) -> ObjectKind {
        match &*self.name.stored.bytes {
            b"Closure" if self.is_internal => ObjectKind::Closure,
            b"Generator" if self.is_internal => ObjectKind::Generator,
            b"Fiber" if self.is_internal => ObjectKind::Fiber,
            _ if self.is_enum => ObjectKind::Enum,
            _ => ObjectKind::Plain,
        }
    }
}

/// The name of an object's class; `None` if it is inconsistent, or the object is not there any
/// more.
fn name_of<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    key: &ClassKey,
    object: SeenObject,
) -> Option<HeapClass> {
    let named = match key.code {
        0 => name_of_class(memory, layout, key.class)?,
        _ => name_of_closure(memory, layout, key, object.address)?,
    };
    let mut header = [0; HEADER];
    memory.read(object.address, &mut header).ok()?;
    let class = class_of(&layout.zend_object, &header, object.handle)?;
    (class == key.class).then_some(named)
}

fn name_of_class<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    class_address: u64,
) -> Option<HeapClass> {
    let class = EngineClass::read(memory, layout, class_address)?;
    let mut name = String::new();
    class.name.show(&mut name);
    Some(HeapClass {
        kind: class.kind(),
        name,
        place: None,
        instances: 0,
        bytes: 0,
        keys: vec![ClassKey::of(class_address)],
    })
}

fn name_of_closure<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    key: &ClassKey,
    object: u64,
) -> Option<HeapClass> {
    let mut head = [0; HEAD];
    memory.read(object + FUNCTION, &mut head).ok()?;
    let function = FunctionKey::parse(layout, &head)?;
    if ClassKey::of_closure(key.class, Some(&function)) != *key {
        return None;
    }
    let named = NamedFunction::resolve(memory, layout, function)?;
    if !named.function.is_checked {
        return None;
    }
    let mut name = named.name().to_owned();
    if !name.starts_with("{closure") {
        // As PHP's syntax for a closure of a function is.
        name += "(...)";
    }
    let place = || format!("{}:{}", named.file(), function.line_start);
    Some(HeapClass {
        kind: ObjectKind::Closure,
        name,
        place: function.is_user().then(place),
        instances: 0,
        bytes: 0,
        keys: vec![*key],
    })
}
