//! Reads which function `set_error_handler` has set (`EG(user_error_handler)`, Zend/zend.c).
//!
//! The engine moves the callable away while it runs it, so a stack that shows the handler says
//! nothing of it: another moment has to. A callable is a function's name, a pair of an object or a
//! class and a method's name, a closure, or an object with `__invoke` (`zend_is_callable_ex`,
//! Zend/zend_API.c); each leads to a `zend_function`, whose name is that of its frames.
//!
//! Invariant: each read has a bounded length, and each walk along a table's chain an end
//! ([`crate::hash`]): a few dozen reads in a valid engine, a few thousand in a hostile one. A name
//! is only given if its texts agree with their hashes; the target has run on meanwhile, so anything
//! else is ignored.

use crate::closure::FUNCTION;
use crate::function::{FunctionKey, HEAD, NamedFunction};
use crate::hash::{find, pair};
use crate::layouts::Layout;
use crate::memory::{Memory, byte_at, word_at};
use crate::site::OBJECT_CLASS;
use crate::text::{ClassName, ZendString};
use crate::zval::{
    IS_ARRAY, IS_NULL, IS_OBJECT, IS_REFERENCE, IS_STRING, IS_UNDEF, TYPE, ZVAL, Zval,
};

/// `zend_reference.val` (Zend/zend_types.h), in all versions.
const REFERENCE_VALUE: u64 = 8;
/// The method that a call of an object runs.
const INVOKE: &[u8] = b"__invoke";
/// The class of closures; it is final.
const CLOSURE: &[u8] = b"Closure";

/// What `EG(user_error_handler)` shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorHandler {
    /// No callable: none is set, or it runs at the moment, or no request runs.
    None,
    /// The function that it calls.
    Named(Box<NamedFunction>),
    /// Something that cannot be read.
    Unreadable,
}

impl ErrorHandler {
    /// Reads the handler of the engine with these globals.
    #[must_use]
    pub fn read<M: Memory + ?Sized>(memory: &M, layout: &Layout, executor_globals: u64) -> Self {
        let engine = EngineTables {
            memory,
            layout,
            executor_globals,
        };
        let offset = layout.executor_globals.user_error_handler as u64;
        let handler = executor_globals.checked_add(offset);
        match handler.and_then(|at| engine.zval(at)) {
            Some(Zval(_, IS_UNDEF | IS_NULL)) => Self::None,
            Some(zval) => engine
                .function(zval)
                .and_then(|function| engine.named(function))
                .map_or(Self::Unreadable, |named| Self::Named(Box::new(named))),
            None => Self::Unreadable,
        }
    }
}

/// The engine's tables of functions and classes.
struct EngineTables<'a, M: ?Sized> {
    memory: &'a M,
    layout: &'a Layout,
    executor_globals: u64,
}

impl<M: Memory + ?Sized> EngineTables<'_, M> {
    /// The address of the `zend_function` that a callable runs.
    fn function(&self, callable: Zval) -> Option<u64> {
        match self.behind_reference(callable)? {
            Zval(string, IS_STRING) => self.named_by(&self.text(string)?),
            Zval(array, IS_ARRAY) => {
                let [target, Zval(name, IS_STRING)] = pair(self.memory, self.layout, array)? else {
                    return None;
                };
                let class = match self.behind_reference(target)? {
                    Zval(object, IS_OBJECT) => self.class_of(object)?,
                    Zval(name, IS_STRING) => self.class(&self.text(name)?)?,
                    _ => return None,
                };
                self.method(class, &self.text(name)?)
            }
            Zval(object, IS_OBJECT) => {
                let class = self.class_of(object)?;
                let name = ClassName::read(self.memory, self.layout, class)?;
                if &*name.stored.bytes == CLOSURE {
                    object.checked_add(FUNCTION)
                } else {
                    self.method(class, INVOKE)
                }
            }
            _ => None,
        }
    }

    /// `f`, or `A::m`, as a text names it.
    fn named_by(&self, text: &[u8]) -> Option<u64> {
        match text.windows(2).position(|two| two == b"::") {
            Some(at) => {
                let class = self.class(text.get(..at)?)?;
                self.method(class, text.get(at + 2..)?)
            }
            None => {
                let functions = self.table(self.layout.executor_globals.function_table)?;
                find(self.memory, self.layout, functions, &key_of(text))
            }
        }
    }

    fn class(&self, name: &[u8]) -> Option<u64> {
        let classes = self.table(self.layout.executor_globals.class_table)?;
        find(self.memory, self.layout, classes, &key_of(name))
    }

    fn class_of(&self, object: u64) -> Option<u64> {
        self.memory.word(object.checked_add(OBJECT_CLASS)?).ok()
    }

    /// The table has inherited methods too, each with the class that declares it.
    fn method(&self, class: u64, name: &[u8]) -> Option<u64> {
        let methods = class.checked_add(self.layout.class_entry.function_table as u64)?;
        find(self.memory, self.layout, methods, &key_of(name))
    }

    fn table(&self, offset: usize) -> Option<u64> {
        let at = self.executor_globals.checked_add(offset as u64)?;
        self.memory.word(at).ok()
    }

    fn text(&self, string: u64) -> Option<crate::short::ShortText> {
        let text = ZendString::read(self.memory, self.layout, string)?;
        text.is_checked.then_some(text.bytes)
    }

    fn behind_reference(&self, zval: Zval) -> Option<Zval> {
        match zval {
            Zval(value, IS_REFERENCE) => self.zval(value.checked_add(REFERENCE_VALUE)?),
            zval => Some(zval),
        }
    }

    fn zval(&self, address: u64) -> Option<Zval> {
        let mut zval = [0_u8; ZVAL];
        self.memory.read(address, &mut zval).ok()?;
        Some(Zval(word_at(&zval, 0), byte_at(&zval, TYPE)))
    }

    fn named(&self, function: u64) -> Option<NamedFunction> {
        let mut head = [0_u8; HEAD];
        self.memory.read(function, &mut head).ok()?;
        let key = FunctionKey::parse(self.layout, &head)?;
        let named = NamedFunction::resolve(self.memory, self.layout, key)?;
        (named.function.is_checked && !named.name().is_empty()).then_some(named)
    }
}

/// A name as the engine's tables have it: in lower case, without the leading backslash of a full
/// one.
fn key_of(name: &[u8]) -> Vec<u8> {
    name.strip_prefix(b"\\")
        .unwrap_or(name)
        .to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layouts::ROWS;
    use crate::testing::EngineImage;

    /// An engine with the function `On_Error`, the class `App\Handler` with the methods
    /// `handleError` and `__invoke`, and its child `App\Special`.
    struct Scene {
        image: EngineImage,
        special: u64,
    }

    impl Scene {
        fn new(layout: &'static Layout) -> Self {
            let mut image = EngineImage::new(layout);
            let row = &layout.executor_globals;
            let globals = image.executor_globals;
            let (functions, classes) = (image.block(), image.block());
            let (parent, special) = (image.class("App\\Handler"), image.class("App\\Special"));
            image.put_word(globals, row.function_table, functions);
            image.put_word(globals, row.class_table, classes);
            let function = image.user(Some("On_Error"), &[1.into()]).func;
            image.put_table(functions, &[("on_error", function)]);
            image.put_table(
                classes,
                &[("app\\handler", parent), ("app\\special", special)],
            );
            let mut method = |name| {
                let method = image.user(Some(name), &[1.into()]).func;
                image.put_word(method, layout.function.scope, parent);
                method
            };
            let (handle, invoke) = (method("handleError"), method("__invoke"));
            let methods = layout.class_entry.function_table as u64;
            let entries = [("handleerror", handle), ("__invoke", invoke)];
            image.put_table(parent + methods, &entries);
            image.put_table(special + methods, &entries);
            Self { image, special }
        }

        fn object(&mut self, class: u64) -> u64 {
            let object = self.image.block();
            self.image.put_word(object, OBJECT_CLASS as usize, class);
            object
        }

        fn read(&mut self, callable: Zval) -> ErrorHandler {
            let (layout, globals) = (self.image.layout, self.image.executor_globals);
            let at = globals + layout.executor_globals.user_error_handler as u64;
            self.image.put_zval(at, callable.0, callable.1);
            ErrorHandler::read(&self.image, layout, globals)
        }

        #[track_caller]
        fn check(&mut self, callable: Zval, expected: &str) {
            match self.read(callable) {
                ErrorHandler::Named(named) => assert_eq!(named.name(), expected),
                other => panic!("{expected}: {other:?}"),
            }
        }
    }

    #[test]
    fn each_form_of_callable_names_its_function() {
        for layout in ROWS {
            let mut scene = Scene::new(layout);
            let string = scene.image.string("\\ON_error");
            scene.check(Zval(string, IS_STRING), "On_Error");
            let string = scene.image.string("App\\Special::handleError");
            scene.check(Zval(string, IS_STRING), "App\\Handler::handleError");
            let object = scene.object(scene.special);
            scene.check(Zval(object, IS_OBJECT), "App\\Handler::__invoke");
            let name = Zval(scene.image.string("HandleError"), IS_STRING);
            let class = Zval(scene.image.string("App\\Special"), IS_STRING);
            for target in [Zval(object, IS_OBJECT), class] {
                let list = scene.image.block();
                scene.image.put_list(list, &[target, name]);
                scene.check(Zval(list, IS_ARRAY), "App\\Handler::handleError");
            }
        }
    }

    #[test]
    fn a_closure_is_named_by_its_place() {
        for layout in ROWS {
            let mut scene = Scene::new(layout);
            let class = scene.image.class("Closure");
            let code = scene.image.user(Some("{closure}"), &[1.into()]).func;
            let mut head = [0; HEAD];
            scene.image.read(code, &mut head).unwrap();
            let object = scene.object(class);
            scene.image.put(object + FUNCTION, &head);
            scene.check(Zval(object, IS_OBJECT), "{closure:/srv/a.php:1}");
        }
    }

    #[test]
    fn no_handler_and_a_running_one_are_none() {
        let mut scene = Scene::new(&ROWS[0]);
        assert_eq!(scene.read(Zval(0, IS_UNDEF)), ErrorHandler::None);
        assert_eq!(scene.read(Zval(0, IS_NULL)), ErrorHandler::None);
    }

    #[test]
    fn what_does_not_hold_together_is_unreadable() {
        let mut scene = Scene::new(&ROWS[0]);
        let unknown = scene.image.string("no_such_function");
        let object = scene.object(0);
        for callable in [
            Zval(unknown, IS_STRING),
            Zval(8, IS_STRING),
            Zval(8, IS_ARRAY),
            Zval(object, IS_OBJECT),
            Zval(u64::MAX, IS_OBJECT),
            Zval(u64::MAX, IS_REFERENCE),
            Zval(1, 4),
            Zval(1, 255),
        ] {
            assert_eq!(
                scene.read(callable),
                ErrorHandler::Unreadable,
                "{callable:?}"
            );
        }
        // A name whose text is not that of its hash may be that of another string by now.
        let string = scene.image.string("on_error");
        let hash = scene.image.layout.zend_string.h;
        scene.image.put_word(string, hash, 7);
        assert_eq!(
            scene.read(Zval(string, IS_STRING)),
            ErrorHandler::Unreadable
        );
    }
}
