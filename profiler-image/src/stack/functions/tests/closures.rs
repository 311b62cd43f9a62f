//! Closures that get the name of the function around them.

use super::*;

const TABLE: u64 = 0x60_0000;
const TABLE_OF_CLASS: u64 = 0x60_1000;
/// The line of closure `number`.
fn line(number: u64) -> u32 {
    number as u32 * 10 + 5
}

/// Closures in a function, as of programs that were started together.
struct Programs {
    codes: Functions,
    maps: Maps,
    memory: EngineImage,
    closures: Vec<Frame>,
}

impl Programs {
    fn new(count: u64) -> Self {
        Self::of_class(count, 0)
    }

    /// The same, of closures of a class whose methods are elsewhere.
    fn in_class(count: u64) -> Self {
        let row = &of_8_2().class_entry;
        let class = TABLE_OF_CLASS - row.function_table as u64;
        let mut programs = Self::of_class(count, class);
        let memory = &mut programs.memory;
        memory.room(class, 0x200);
        let method = put(memory, 51, "m", true);
        memory.put_word(class, row.name, STRINGS + 51 * 0x100);
        memory.put_table(TABLE_OF_CLASS, &[("m", method.func)]);
        programs
    }

    fn of_class(count: u64, scope: u64) -> Self {
        let (codes, maps, mut memory) = nothing_known();
        memory.put_string(STRINGS, "{closure}");
        let around = put(&mut memory, 50, "f", true);
        let row = &memory.layout.function;
        memory.put_half(around.func, row.line_start, 10);
        memory.put_half(around.func, row.line_start + 4, 1000);
        let closures = (1..=count).map(|number| {
            let mut closure = put(&mut memory, number, "", true);
            closure.call_info = memory.layout.call_info.closure;
            let key = FunctionKey {
                code: closure.opline,
                last: 4,
                kind: 2,
                passing: true,
                name: STRINGS,
                filename: FILE,
                line_start: line(number),
                scope,
                ..FunctionKey::default()
            };
            memory.put_function(closure.func, &key);
            closure
        });
        let closures = closures.collect();
        memory.room(TABLE, 0x100);
        memory.put_table(TABLE, &[("f", around.func)]);
        let mut programs = Self {
            codes,
            maps,
            memory,
            closures,
        };
        programs.put_table_at(TABLE);
        programs
    }

    /// The engine's table of global functions is here.
    fn put_table_at(&mut self, address: u64) {
        let field = self.memory.layout.executor_globals.function_table;
        let globals = self.memory.executor_globals;
        self.memory.put_word(globals, field, address);
    }

    /// The name of a closure's id after a sample of it at this time.
    fn sample(&mut self, index: usize, now: u64) -> NameId {
        let frame = self.closures[index];
        let mut ids = Vec::new();
        let mut place = place(&self.memory, &mut self.maps.shared, &mut self.maps.local);
        place.now = now;
        self.codes.begin();
        self.codes
            .identify(&mut place, &[frame], &mut ids, |_, _| stands(1));
        self.codes.name(ids[0].unwrap(), false)
    }

    fn shown(&self, id: NameId) -> String {
        self.codes.names.get(id).name.to_string()
    }
}

#[test]
fn closure_has_the_name_of_its_function() {
    let mut programs = Programs::new(1);
    let id = programs.sample(0, 1);
    assert_eq!(programs.shown(id), "{closure:f():15}");
    assert_eq!(programs.sample(0, 2), id);
}

#[test]
fn tables_in_no_sample_are_read_later() {
    let mut programs = Programs::new(40);
    let ids: Vec<NameId> = (0..40).map(|index| programs.sample(index, 1)).collect();
    let in_functions = |programs: &Programs| {
        let shown = ids.iter().map(|&id| programs.shown(id));
        shown.filter(|name| name.starts_with("{closure:f")).count()
    };
    assert_eq!(in_functions(&programs), 32);
    // A tenth of a second for each further one; the earlier samples get the name too.
    for tenth in 1..=8 {
        for (index, id) in ids.iter().enumerate() {
            let now = 1 + tenth * 100_000_000;
            assert_eq!(programs.sample(index, now), *id);
        }
        assert_eq!(in_functions(&programs), 32 + tenth as usize);
    }
}

/// A closure of a class takes two tables.
#[test]
fn tables_of_classes_are_read_no_faster() {
    let mut programs = Programs::in_class(40);
    let mut in_functions = |now: u64| {
        let ids: Vec<NameId> = (0..40).map(|index| programs.sample(index, now)).collect();
        let shown = ids.iter().map(|&id| programs.shown(id));
        shown.filter(|name| name.starts_with("{closure:f")).count()
    };
    assert_eq!(in_functions(1), 16);
    let later = (1..=8).map(|tenth| in_functions(1 + tenth * 100_000_000));
    assert_eq!(later.collect::<Vec<_>>(), [17, 17, 18, 18, 19, 19, 20, 20]);
}

#[test]
fn closure_outside_functions_keeps_its_file() {
    let mut programs = Programs::new(1);
    let row = &programs.memory.layout.function;
    programs
        .memory
        .put_half(programs.closures[0].func, row.line_start, 2000);
    let id = programs.sample(0, 1);
    assert_eq!(programs.shown(id), "{closure:/a.php:2000}");
    assert!(programs.codes.names.is_closure_settled(id));
}

/// Its call may have returned before the table was read, again and again.
#[test]
fn closure_is_looked_up_32_times() {
    let tenth = 100_000_000;
    for (failed, name) in [(31, "{closure:f():15}"), (32, "{closure:/a.php:15}")] {
        let mut programs = Programs::new(1);
        programs.put_table_at(8);
        let id = programs.sample(0, 1);
        for number in 1..failed {
            assert_eq!(programs.sample(0, 1 + number * tenth), id);
            assert_eq!(programs.shown(id), "{closure:/a.php:15}");
        }
        programs.put_table_at(TABLE);
        assert_eq!(programs.sample(0, 1 + failed * tenth), id);
        assert_eq!(programs.shown(id), name);
    }
}
