//! No circle between modules: of two modules side by side, one uses the other or neither does.
//!
//! It reads each crate's sources as tokens, takes the paths that begin with `crate`, `self` or
//! `super`, and leaves out what is compiled for tests only. A name that a module has from another
//! one (`pub use`) counts as that one's. A module stands for all that is below it, so folders are
//! compared as well as files.
//!
//! Invariant: it leaves out no crate, and no circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The path of a module from its crate's root.
type ModulePath = Vec<String>;
/// The modules that each module uses.
type Uses = BTreeMap<ModulePath, BTreeSet<ModulePath>>;

/// The paths of some code.
#[derive(Default)]
struct Paths {
    found: Vec<ModulePath>,
}

impl Paths {
    fn of(code: &str) -> Self {
        let mut paths = Paths::default();
        let tokens: TokenStream = code.parse().expect("Rust");
        paths.read(&tokens.into_iter().collect::<Vec<_>>());
        paths
    }

    fn read(&mut self, tokens: &[TokenTree]) {
        let mut rest = tokens;
        while let [first, after @ ..] = rest {
            rest = match first {
                TokenTree::Punct(sign) if sign.as_char() == '#' && is_for_tests(after) => {
                    after_item(after)
                }
                TokenTree::Ident(name) if is_root(&name.to_string()) && is_separator(after) => {
                    self.path(&mut Vec::new(), rest)
                }
                TokenTree::Group(group) => {
                    let inner: Vec<_> = group.stream().into_iter().collect();
                    self.read(&inner);
                    after
                }
                _ => after,
            };
        }
    }

    /// Reads `a::b::{c, d}` with what stands before it. Returns what follows.
    fn path<'a>(&mut self, before: &mut ModulePath, tokens: &'a [TokenTree]) -> &'a [TokenTree] {
        match tokens {
            [TokenTree::Ident(name), rest @ ..] => {
                before.push(name.to_string());
                match rest {
                    [_, _, rest @ ..] if is_separator(&tokens[1..]) => self.path(before, rest),
                    _ => {
                        self.found.push(before.clone());
                        rest
                    }
                }
            }
            [TokenTree::Group(group), rest @ ..] if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<_> = group.stream().into_iter().collect();
                let is_comma = |token: &TokenTree| token.to_string() == ",";
                for part in inner.split(is_comma) {
                    self.path(&mut before.clone(), part);
                }
                rest
            }
            _ => {
                self.found.push(before.clone());
                tokens
            }
        }
    }
}

fn is_root(name: &str) -> bool {
    ["crate", "self", "super"].contains(&name)
}

fn is_separator(tokens: &[TokenTree]) -> bool {
    let is_colon = |token: &TokenTree| token.to_string() == ":";
    matches!(tokens, [one, other, ..] if is_colon(one) && is_colon(other))
}

/// Whether an attribute follows that leaves an item to tests.
fn is_for_tests(tokens: &[TokenTree]) -> bool {
    let attribute = tokens.first().map(ToString::to_string);
    attribute.is_some_and(|text| text.replace(' ', "") == "[cfg(test)]")
}

/// What follows an item, which ends with a block or a semicolon.
fn after_item(tokens: &[TokenTree]) -> &[TokenTree] {
    let is_end = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        token => token.to_string() == ";",
    };
    let end = tokens.iter().position(is_end);
    end.map_or(&[], |end| &tokens[end + 1..])
}

/// The files of a crate by module, without those of tests and of programs of their own.
fn files(folder: &Path, module: &ModulePath, into: &mut BTreeMap<ModulePath, PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if ["tests", "testing", "bin"].contains(&&*name) {
            continue;
        }
        let mut inner = module.clone();
        if !["lib", "main", "mod"].contains(&&*name) {
            inner.push(name.into_owned());
        }
        if path.is_dir() {
            files(&path, &inner, into);
        } else if path.extension().is_some_and(|end| end == "rs") {
            into.insert(inner, path);
        }
    }
}

/// One crate's modules.
#[derive(Default)]
struct Crate {
    /// Each module's file.
    files: BTreeMap<ModulePath, PathBuf>,
    /// Where the names are that a module has from elsewhere, as paths in that module.
    imports: BTreeMap<ModulePath, BTreeMap<String, ModulePath>>,
}

impl Crate {
    fn read(root: &Path) -> Self {
        let mut all = Crate::default();
        files(root, &Vec::new(), &mut all.files);
        for (module, file) in &all.files {
            let code = std::fs::read_to_string(file).expect("a source");
            all.imports.insert(module.clone(), imports(&code));
        }
        all
    }

    /// The module that a path in a module leads to; `None` if it leaves the crate's modules.
    fn target(&self, from: &ModulePath, path: &ModulePath) -> Option<ModulePath> {
        let mut to = resolved(from, path);
        for _ in 0..MOST_STEPS {
            let mut module = to.clone();
            while !self.files.contains_key(&module) {
                module.pop()?;
            }
            let imports = &self.imports[&module];
            let from_elsewhere = to.get(module.len()).and_then(|name| imports.get(name));
            match from_elsewhere.map(|path| self.import(&module, path)) {
                Some(Some(elsewhere)) if elsewhere != to => to = elsewhere,
                _ => return Some(module),
            }
        }
        None
    }

    /// Where an import leads; `None` to another crate.
    fn import(&self, module: &ModulePath, path: &ModulePath) -> Option<ModulePath> {
        let first = path.first()?;
        let below = [&module[..], std::slice::from_ref(first)].concat();
        let is_ours = is_root(first) || self.files.contains_key(&below);
        is_ours.then(|| resolved(module, path))
    }
}

/// More than a name goes through.
const MOST_STEPS: usize = 8;

/// A path in a module, from the crate's root.
fn resolved(from: &ModulePath, path: &ModulePath) -> ModulePath {
    let mut to = from.clone();
    for name in path {
        match name.as_str() {
            "crate" => to.clear(),
            "self" => {}
            "super" => drop(to.pop()),
            name => to.push(name.to_owned()),
        }
    }
    to
}

/// The names that a file's `use` items give its module, with their paths.
fn imports(code: &str) -> BTreeMap<String, ModulePath> {
    let mut names = BTreeMap::new();
    for item in syn::parse_file(code).expect("Rust").items {
        if let syn::Item::Use(item) = item {
            import(&item.tree, &Vec::new(), &mut names);
        }
    }
    names
}

fn import(tree: &syn::UseTree, before: &ModulePath, into: &mut BTreeMap<String, ModulePath>) {
    let with = |name: &syn::Ident| [&before[..], &[name.to_string()]].concat();
    match tree {
        syn::UseTree::Path(path) => import(&path.tree, &with(&path.ident), into),
        syn::UseTree::Group(group) => {
            for tree in &group.items {
                import(tree, before, into);
            }
        }
        syn::UseTree::Name(name) if name.ident == "self" => {
            if let Some(last) = before.last() {
                into.insert(last.clone(), before.clone());
            }
        }
        syn::UseTree::Name(name) => drop(into.insert(name.ident.to_string(), with(&name.ident))),
        syn::UseTree::Rename(name) => drop(into.insert(name.rename.to_string(), with(&name.ident))),
        _ => {}
    }
}

/// Which modules side by side use each other, by the module around them.
fn siblings(root: &Path) -> BTreeMap<ModulePath, Uses> {
    let all = Crate::read(root);
    let mut levels: BTreeMap<ModulePath, Uses> = BTreeMap::new();
    for (from, file) in &all.files {
        let code = std::fs::read_to_string(file).expect("a source");
        for path in Paths::of(&code).found {
            let Some(to) = all.target(from, &path) else {
                continue;
            };
            let same = from.iter().zip(&to).take_while(|(one, other)| one == other);
            let depth = same.count();
            if let (Some(one), Some(other)) = (from.get(depth), to.get(depth)) {
                let level = levels.entry(from[..depth].to_vec()).or_default();
                let used = level.entry(vec![one.clone()]).or_default();
                used.insert(vec![other.clone()]);
            }
        }
    }
    levels
}

/// All that a module reaches.
fn reached(from: &ModulePath, uses: &Uses) -> BTreeSet<ModulePath> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        for next in uses.get(module).into_iter().flatten() {
            if reached.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    reached
}

/// The largest sets of modules that all reach each other.
fn circles(uses: &Uses) -> BTreeSet<BTreeSet<String>> {
    let reach: BTreeMap<_, _> = uses.keys().map(|one| (one, reached(one, uses))).collect();
    let circle = |one: &&ModulePath| {
        let both = reach[*one].iter().filter(|other| {
            let back = reach.get(other);
            back.is_some_and(|back| back.contains(*one))
        });
        both.flatten().cloned().collect::<BTreeSet<_>>()
    };
    let circles = uses.keys().map(|one| circle(&one));
    circles.filter(|circle| !circle.is_empty()).collect()
}

/// The folders with a crate's root: `src` of each crate, and each program and each folder of tests
/// next to it.
fn roots() -> Vec<PathBuf> {
    let manifest = phpprof_documents::root().join("Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).expect("the workspace's manifest");
    let members = manifest.split("members = [").nth(1).expect("members");
    let members = members.split(']').next().unwrap_or_default().split(',');
    let mut roots = Vec::new();
    for member in members {
        let src = phpprof_documents::root()
            .join(member.trim().trim_matches('"'))
            .join("src");
        for folder in ["bin", "../tests"] {
            let programs = std::fs::read_dir(src.join(folder)).into_iter().flatten();
            let programs = programs.map(|entry| entry.expect("an entry").path());
            roots.extend(programs.filter(|path| path.join("main.rs").is_file()));
        }
        roots.push(src);
    }
    roots.retain(|root| root.is_dir());
    roots.sort();
    roots
}

#[test]
fn modules_have_no_circles() {
    let root = phpprof_documents::root();
    let roots = roots();
    assert!(roots.len() > 10, "{roots:?}");
    let mut found = Vec::new();
    for folder in &roots {
        let of_crate = folder.strip_prefix(&root).unwrap().display().to_string();
        for (level, uses) in siblings(folder) {
            let level = level.join("::");
            let circles = circles(&uses).into_iter();
            found.extend(circles.map(|circle| format!("{of_crate} {level}: {circle:?}")));
        }
    }
    assert!(
        found.is_empty(),
        "modules use each other in a circle: {found:#?}"
    );
}

#[test]
fn paths_leave_out_code_for_tests() {
    let code = r#"
        //! use crate::comment::One;
        use crate::{first, second::{Two, third as other}};
        use super::above;
        #[cfg(test)]
        use crate::testing::at;
        const TEXT: &str = "crate::text::Three";
        pub(crate) fn run() { crate::called::by_path::<u8>(); }
        #[cfg(test)]
        mod tests { use crate::fourth; }
        use self::below::*;
    "#;
    let found = Paths::of(code).found;
    let found: Vec<String> = found.iter().map(|path| path.join("::")).collect();
    let expected = [
        "crate::first",
        "crate::second::Two",
        "crate::second::third",
        "super::above",
        "crate::called::by_path",
        "self::below",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_name_from_elsewhere_is_that_modules() {
    let path = |text: &str| -> ModulePath { text.split("::").map(str::to_owned).collect() };
    let mut all = Crate::default();
    let modules = [
        (
            "",
            "pub use one::{self as first, Name}; use std::fmt; mod one; mod two;",
        ),
        ("one", "pub use crate::two::Other as Name;"),
        ("two", "pub struct Other;"),
    ];
    for (name, code) in modules {
        let module = path(name).into_iter().filter(|name| !name.is_empty());
        let module: ModulePath = module.collect();
        all.files.insert(module.clone(), PathBuf::new());
        all.imports.insert(module, imports(code));
    }
    let target = |to: &str| all.target(&path("two"), &path(to));
    assert_eq!(target("crate::Name"), Some(path("two")));
    assert_eq!(target("super::first::Missing"), Some(path("one")));
    assert_eq!(target("crate::fmt::Display"), Some(Vec::new()));
}

#[test]
fn circles_are_those_that_reach_each_other() {
    let one = |name: &str| vec![name.to_owned()];
    let edges = [
        ("a", "b"),
        ("b", "c"),
        ("c", "a"),
        ("c", "d"),
        ("d", "e"),
        ("f", "d"),
    ];
    let mut uses = Uses::new();
    for (from, to) in edges {
        uses.entry(one(from)).or_default().insert(one(to));
    }
    let abc = ["a", "b", "c"].map(str::to_owned);
    assert_eq!(circles(&uses), [abc.into()].into());
}
