//! The rules, and what breaks them in one Rust file.

use std::fmt;
use std::path::{Path, PathBuf};

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A rule, with what counts against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A parameter that is a tuple has several in the place of one. The parameters of a trait's
    /// methods are the trait's.
    TupleParameter,
    /// `match` on a truth value, which is an `if`.
    MatchOnBool,
    /// `match ()` with guards, which is an `if` with several branches.
    MatchOnNothing,
    /// A function of more than 60 lines. Tests have tables, which are not counted.
    LongFunction,
    /// A file of more than 500 lines.
    LongFile,
    /// A type whose name another type of the workspace has.
    SharedTypeName,
    /// A word for anything (`VAGUE`) as the name of a second type, also in tests.
    VagueTypeName,
    /// A function that is called `is_…` or `has_…`, and does not answer yes or no, perhaps later or
    /// with an error.
    NotAQuestion,
    /// A test of the pure gate that measures a time: a busy machine would break it.
    MeasuredTime,
    /// A test whose name has more than eight words.
    LongTestName,
}

pub const RULES: [Rule; 10] = [
    Rule::TupleParameter,
    Rule::MatchOnBool,
    Rule::MatchOnNothing,
    Rule::LongFunction,
    Rule::LongFile,
    Rule::SharedTypeName,
    Rule::VagueTypeName,
    Rule::NotAQuestion,
    Rule::MeasuredTime,
    Rule::LongTestName,
];

/// Folders of tests that another stage runs, on real programs.
const OTHER_STAGES: [&str; 6] = [
    "e2e/tests",
    "kubectl-phpprof/tests/connections",
    "profile/tests/readers",
    "profiler-image/bench",
    "profiler-image/tests/php",
    "profiler-image/tests/runtimes",
];
/// What may measure times, and why.
const MEASURES: [(&str, &str); 2] = [
    ("testing/src", "its waits end"),
    ("operator/src/http/runs.rs", "its clock stands still"),
];

/// Names that say nothing of their type: one may have each.
pub const VAGUE: [&str; 8] = [
    "Answer", "Asked", "Found", "Outcome", "Place", "Row", "Seen", "Shown",
];

const LINES_OF_FUNCTION: usize = 60;
pub const LINES_OF_FILE: usize = 500;
const WORDS_OF_TEST: usize = 8;

/// What breaks a rule, and where.
#[derive(Debug, PartialEq, Eq)]
pub struct Offence {
    pub rule: Rule,
    pub file: PathBuf,
    pub line: usize,
    pub what: String,
}

impl fmt::Display for Offence {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, line) = (self.file.display(), self.line);
        write!(to, "{:?} {file}:{line} {}", self.rule, self.what)
    }
}

/// Reads one file's tree.
pub struct Reader<'a> {
    file: &'a Path,
    /// Whether the code is compiled for tests only.
    is_test: bool,
    /// Whether it implements a trait.
    is_of_trait: bool,
    pub found: Vec<Offence>,
    /// Types that are not for tests only, with their lines.
    pub types: Vec<(String, usize)>,
    /// All types whose name is vague, with their lines.
    pub vague: Vec<(String, usize)>,
}

impl Reader<'_> {
    fn offence(&mut self, rule: Rule, span: Span, what: impl fmt::Display) {
        self.found.push(Offence {
            rule,
            file: self.file.to_owned(),
            line: span.start().line,
            what: what.to_string(),
        });
    }

    /// A function's name, parameters and length.
    fn function(&mut self, attributes: &[syn::Attribute], signature: &syn::Signature, end: Span) {
        let name = &signature.ident;
        if !attributes.iter().any(is_test) && is_question(name) && !answers(signature) {
            self.offence(Rule::NotAQuestion, signature.span(), name);
        }
        for parameter in &signature.inputs {
            if let syn::FnArg::Typed(parameter) = parameter
                && is_tuple(&parameter.ty)
                && !self.is_of_trait
            {
                self.offence(Rule::TupleParameter, parameter.span(), name);
            }
        }
        let lines = end.end().line + 1 - signature.span().start().line;
        if lines > LINES_OF_FUNCTION && !self.is_test {
            let what = format!("{name} has {lines} lines");
            self.offence(Rule::LongFunction, signature.span(), what);
        }
    }

    fn type_name(&mut self, name: &syn::Ident) {
        let (name, line) = (name.to_string(), name.span().start().line);
        if VAGUE.contains(&name.as_str()) {
            self.vague.push((name.clone(), line));
        }
        if !self.is_test {
            self.types.push((name, line));
        }
    }

    /// Functions after `#[test]`, also in macros that make tests.
    fn tests(&mut self, tokens: TokenStream) {
        let (mut is_test, mut before) = (false, String::new());
        for token in tokens {
            let this = match &token {
                TokenTree::Group(group) => {
                    if before == "#" {
                        is_test |= is_test_attribute(group.stream());
                    } else {
                        self.tests(group.stream());
                    }
                    String::new()
                }
                TokenTree::Ident(name) if before == "fn" => {
                    let words = name.to_string().split('_').count();
                    if std::mem::take(&mut is_test) && words > WORDS_OF_TEST {
                        let what = format!("{name} has {words} words");
                        self.offence(Rule::LongTestName, name.span(), what);
                    }
                    String::new()
                }
                TokenTree::Ident(name) => name.to_string(),
                TokenTree::Punct(sign) => sign.to_string(),
                TokenTree::Literal(_) => String::new(),
            };
            before = this;
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let before = self.is_test;
        self.is_test |= module.attrs.iter().any(is_for_tests);
        visit::visit_item_mod(self, module);
        self.is_test = before;
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.function(&function.attrs, &function.sig, function.block.span());
        visit::visit_item_fn(self, function);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let before = self.is_of_trait;
        self.is_of_trait = item.trait_.is_some();
        visit::visit_item_impl(self, item);
        self.is_of_trait = before;
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.function(&function.attrs, &function.sig, function.block.span());
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.function(&function.attrs, &function.sig, function.span());
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.type_name(&item.ident);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.type_name(&item.ident);
        visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.type_name(&item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.type_name(&item.ident);
        visit::visit_item_type(self, item);
    }

    /// Arguments of a macro are expressions most of the time.
    fn visit_macro(&mut self, invoked: &'ast syn::Macro) {
        let arguments = Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated;
        let arguments = invoked.parse_body_with(arguments).unwrap_or_default();
        for argument in &arguments {
            Reader::visit_expr(self, argument);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if self.is_test && call.method == "elapsed" && is_of_pure_gate(self.file) {
            self.offence(Rule::MeasuredTime, call.span(), "elapsed");
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        if expression.arms.iter().any(|arm| is_bool(&arm.pat)) {
            self.offence(Rule::MatchOnBool, expression.span(), "match");
        }
        if matches!(&*expression.expr, syn::Expr::Tuple(tuple) if tuple.elems.is_empty()) {
            self.offence(Rule::MatchOnNothing, expression.span(), "match ()");
        }
        visit::visit_expr_match(self, expression);
    }
}

fn is_tuple(of: &syn::Type) -> bool {
    match of {
        syn::Type::Tuple(tuple) => tuple.elems.len() > 1,
        syn::Type::Reference(to) => is_tuple(&to.elem),
        _ => false,
    }
}

fn is_bool(pattern: &syn::Pat) -> bool {
    match pattern {
        syn::Pat::Lit(literal) => matches!(literal.lit, syn::Lit::Bool(_)),
        syn::Pat::Or(cases) => cases.cases.iter().any(is_bool),
        syn::Pat::Guard(guarded) => is_bool(&guarded.pat),
        _ => false,
    }
}

/// Whether a name says that its function only asks.
fn is_question(name: &syn::Ident) -> bool {
    let name = name.to_string();
    ["is_", "has_"].iter().any(|begin| name.starts_with(begin))
}

/// Whether a function's answer is a yes or no.
fn answers(signature: &syn::Signature) -> bool {
    let mut yes_or_no = YesOrNo(false);
    yes_or_no.visit_return_type(&signature.output);
    yes_or_no.0
}

/// Whether a type has `bool` in it.
struct YesOrNo(bool);

impl<'ast> Visit<'ast> for YesOrNo {
    fn visit_ident(&mut self, name: &'ast syn::Ident) {
        self.0 |= name == "bool";
    }
}

/// Whether an attribute makes a test.
fn is_test(attribute: &syn::Attribute) -> bool {
    let last = attribute.path().segments.last();
    last.is_some_and(|last| last.ident == "test")
}

/// Whether an attribute is `test`, or of another crate with that name.
fn is_test_attribute(attribute: TokenStream) -> bool {
    let tokens = attribute.into_iter().take_while(|token| match token {
        TokenTree::Punct(sign) => sign.as_char() == ':',
        token => matches!(token, TokenTree::Ident(_)),
    });
    let last = tokens.last();
    last.is_some_and(|last| matches!(last, TokenTree::Ident(name) if name == "test"))
}

fn is_for_tests(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else {
        return false;
    };
    let condition = list.tokens.to_string();
    list.path.is_ident("cfg")
        && condition
            .split([' ', '(', ')', ','])
            .any(|word| word == "test")
}

/// Whether a file is compiled for tests only, by its path.
fn is_file_of_tests(file: &Path) -> bool {
    let mut parts = file.components().map(|part| part.as_os_str());
    parts.any(|part| {
        ["tests", "tests.rs", "testing", "testing.rs", "benches"]
            .iter()
            .any(|of| part == *of)
    })
}

/// Whether the pure gate runs the tests in a file, and they may not measure times.
fn is_of_pure_gate(file: &Path) -> bool {
    let mut others = OTHER_STAGES.iter();
    let mut measures = MEASURES.iter().map(|(may, _)| may);
    others.all(|stage| !file.starts_with(stage)) && measures.all(|may| !file.starts_with(may))
}

/// What breaks a rule in some Rust, and its types.
pub fn read<'a>(file: &'a Path, code: &str) -> Reader<'a> {
    let mut reader = Reader {
        file,
        is_test: is_file_of_tests(file),
        is_of_trait: false,
        found: Vec::new(),
        types: Vec::new(),
        vague: Vec::new(),
    };
    let tokens: TokenStream = code.parse().expect("Rust");
    let tree = syn::parse2(tokens.clone());
    let tree = tree.map_err(|error| format!("{}: {error}", file.display()));
    reader.visit_file(&tree.expect("Rust"));
    reader.tests(tokens);
    reader
}

/// What breaks a rule in some code, as rule, line and text.
fn broken(file: &str, code: &str) -> Vec<(Rule, usize, String)> {
    let found = read(Path::new(file), code).found;
    let found = found.into_iter();
    found
        .map(|offence| (offence.rule, offence.line, offence.what))
        .collect()
}

#[test]
fn each_rule_has_its_offences() {
    let code = r#"
        fn two((a, b): (u8, u8), one: &(u8, u8)) {}
        fn none(all: &[(u8, u8)], (only,): (u8,), unit: ()) {}
        fn asks(is_so: bool) {
            match is_so { true => {}, false => {} }
            match is_so { true if one => {}, _ => {} }
            match () { () if is_so => {}, () => {} }
            match (is_so, 1) { (true, 1) => {}, _ => {} }
            match maybe { Some(true) => {}, _ => {} }
            assert_eq!(match is_so { true => 1, false => 2 }, 1);
        }
        trait Gives { fn gives(&self, pair: (u8, u8)); }
        #[test]
        fn a_b_c_d_e_f_g_h() {}
        proptest! {
            #[test]
            fn a_b_c_d_e_f_g_h_i(x in 0..1) {}
        }
        #[tokio::test(flavor = "multi_thread")]
        async fn one_two_three_four_five_six_seven_eight_nine() {}
        fn a_name_of_nine_words_that_is_no_test() {}
        async fn is_new(of: &Vec<u8>) -> Result<()> {}
        fn has_any(&self) -> Result<bool, Error> {}
        fn is_old(self) -> Option<u8> {}
        #[tokio::test]
        async fn is_asked_for_its_rule() {}
    "#;
    let expected = [
        (Rule::TupleParameter, 2, "two"),
        (Rule::TupleParameter, 2, "two"),
        (Rule::MatchOnBool, 5, "match"),
        (Rule::MatchOnBool, 6, "match"),
        (Rule::MatchOnNothing, 7, "match ()"),
        (Rule::MatchOnBool, 10, "match"),
        (Rule::TupleParameter, 12, "gives"),
        (Rule::LongTestName, 17, "a_b_c_d_e_f_g_h_i has 9 words"),
        (
            Rule::LongTestName,
            20,
            "one_two_three_four_five_six_seven_eight_nine has 9 words",
        ),
    ];
    let asking = [(22, "is_new"), (24, "is_old")];
    let asking = asking.map(|(line, name)| (Rule::NotAQuestion, line, name));
    let mut expected = [&asking[..], &expected[..]].concat();
    expected.sort_by_key(|it| (it.0 == Rule::LongTestName, it.1));
    let expected: Vec<_> = expected
        .into_iter()
        .map(|(rule, line, what)| (rule, line, what.to_owned()))
        .collect();
    assert_eq!(broken("src/one.rs", code), expected);
}

#[test]
fn long_functions_are_counted_outside_tests() {
    let body = "a();\n".repeat(LINES_OF_FUNCTION - 2);
    let of_limit = format!("fn most() {{\n{body}}}\n");
    assert_eq!(broken("src/one.rs", &of_limit), []);
    let longer = format!("#[inline]\nfn more() {{\n{body}\n}}\n");
    let expected = (Rule::LongFunction, 2, "more has 61 lines".to_owned());
    assert_eq!(broken("src/one.rs", &longer), [expected]);
    assert_eq!(broken("src/one/tests.rs", &longer), []);
    assert_eq!(broken("tests/one.rs", &longer), []);
    let inside = format!("#[cfg(test)]\nmod tests {{\n{longer}}}\n");
    assert_eq!(broken("src/one.rs", &inside), []);
}

#[test]
fn tests_of_the_pure_gate_measure_no_time() {
    let code = "fn waits() {\n assert!(one(began.elapsed() < LONG)); }";
    let expected = (Rule::MeasuredTime, 2, "elapsed".to_owned());
    assert_eq!(broken("crds/tests/one.rs", code), [expected]);
    assert_eq!(broken("e2e/tests/one.rs", code), []);
    assert_eq!(broken("crds/src/one.rs", code), []);
}

#[test]
fn types_are_those_outside_tests() {
    let code = r#"
        struct One;
        impl Iterator for One { type Item = u8; }
        fn inner() { enum Two {} }
        trait Three { type Four; }
        type Five = u8;
        #[cfg(test)]
        mod tests { struct Six; }
    "#;
    let vague = "#[cfg(test)] mod tests { struct Row; }";
    let vague = read(Path::new("src/one.rs"), vague).vague;
    assert_eq!(vague, [("Row".to_owned(), 1)]);
    let types = read(Path::new("src/one.rs"), code).types;
    let expected = [("One", 2), ("Two", 4), ("Three", 5), ("Five", 6)];
    assert_eq!(types, expected.map(|(name, line)| (name.to_owned(), line)));
}
