//! Makes the template of a route from a request's path: pure. Only this module decides which part
//! of a path may be shown.
//!
//! The administrator's own rules come first; else each segment is kept, or replaced by its kind.
//! Whatever may be an id or a secret is replaced: a rule can repair a route that shows too little,
//! but nothing removes a secret from a profile.
//! Invariant: a template is bounded in depth and length, has neither `?` nor `#`, and its template
//! is itself.

/// The largest number of segments of a template; deeper ones become [`REST`].
const MAX_DEPTH: usize = 8;
/// Bytes of a template, and of a name that the administrator gives.
pub const MAX_LENGTH: usize = 120;
/// Bytes of a segment that may be a name.
const MAX_SEGMENT: usize = 40;
/// Letters of a word; longer ones are not taken for words.
const MAX_WORD: usize = 20;
/// The largest number of the administrator's rules, and bytes of a rule's glob.
pub const MAX_RULES: usize = 64;
const MAX_GLOB: usize = 256;
/// Replaces all deeper segments, also in a glob.
const REST: &str = "**";
/// A part is replaced repeatedly while it changes, but not more often than this.
const MAX_ROUNDS: usize = 4;
const SEPARATORS: &[char] = &['-', '_', '.', '~', ':', ',', '+'];

/// What the command line calls code that is in no file (`sapi/cli/php_cli.c`).
const WITHOUT_FILE: &[&str] = &[
    "Command line code",
    "Command line begin code",
    "Command line run code",
    "Command line end code",
    "Standard input code",
];

type Looks = fn(&str) -> bool;

/// Replacements of a whole segment; the first match applies: the name, and a test of the segment.
const SEGMENTS: &[(&str, Looks)] = &[
    ("{id}", is_digits),
    ("{uuid}", is_uuid),
    ("{ulid}", is_ulid),
    ("{date}", is_date),
    ("{hash}", is_hash),
    ("{email}", |segment| segment.contains('@')),
    ("{text}", |segment| !segment.chars().all(may_be_kept)),
    ("{text}", |segment| segment.len() > MAX_SEGMENT),
    ("{token}", is_token),
];

/// The same for the part between two separators.
const PARTS: &[(&str, Looks)] = &[
    ("{id}", is_digits),
    ("{hash}", is_hash),
    ("{token}", is_token),
    ("{token}", is_code),
];

/// The administrator's rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteRules(Vec<RouteRule>);

/// The paths of one route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteRule {
    /// The segments; `*` is one segment, `**` at the end any rest.
    glob: Vec<String>,
    name: String,
}

impl RouteRule {
    /// Reads `GLOB=NAME`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (glob, name) = text.rsplit_once('=').ok_or("a route must be GLOB=NAME")?;
        if !glob.starts_with('/') || glob.len() > MAX_GLOB {
            return Err(format!(
                "a route's glob must begin with / and have at most {MAX_GLOB} bytes"
            ));
        }
        let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '?' | '#');
        if name.is_empty() || name.len() > MAX_LENGTH || !name.chars().all(is_plain) {
            return Err(format!(
                "a route's name must have 1 to {MAX_LENGTH} characters without spaces, ? and #"
            ));
        }
        let glob: Vec<String> = segments(glob).map(str::to_owned).collect();
        let is_misplaced = |(index, segment): (usize, &String)| match segment.as_str() {
            REST => index + 1 < glob.len(),
            "*" => false,
            other => other.contains('*'),
        };
        if glob.iter().enumerate().any(is_misplaced) {
            return Err("* must be a whole segment, and ** must be the rest at the end".to_owned());
        }
        Ok(Self {
            glob,
            name: name.to_owned(),
        })
    }

    fn matches(&self, path: &str) -> bool {
        let mut path = segments(path);
        for glob in &self.glob {
            match (glob.as_str(), path.next()) {
                (REST, _) => return true,
                ("*", Some(_)) => {}
                (name, Some(segment)) if name == segment => {}
                _ => return false,
            }
        }
        path.next().is_none()
    }
}

impl RouteRules {
    /// Takes the rules in their order.
    ///
    /// # Errors
    /// If there are too many.
    pub fn new(rules: Vec<RouteRule>) -> Result<Self, String> {
        if rules.len() > MAX_RULES {
            return Err(format!("at most {MAX_RULES} routes can be named"));
        }
        Ok(Self(rules))
    }

    /// The route of a path.
    #[must_use]
    pub fn route(&self, path: &str) -> String {
        match self.0.iter().find(|rule| rule.matches(path)) {
            Some(rule) => rule.name.clone(),
            None => template(path),
        }
    }
}

/// The template of a path by the built-in rules.
#[must_use]
pub fn template(path: &str) -> String {
    template_by(path, settled)
}

/// The template of a script's path, whose folders and files the application's authors have named:
/// letters of all scripts are kept, and `<hh>`, a byte that is none.
#[must_use]
pub fn template_of_file(path: &str) -> String {
    if WITHOUT_FILE.contains(&path) {
        return path.to_owned();
    }
    template_by(path, |segment| {
        let plain = plain(segment);
        let is_kept = plain != segment && settled(&plain) == plain;
        if is_kept {
            segment.to_owned()
        } else {
            settled(segment)
        }
    })
}

/// A segment with another letter in place of each that is not ASCII.
fn plain(segment: &str) -> String {
    let mut rest = segment;
    let mut plain = String::new();
    while let Some(letter) = rest.chars().next() {
        let is_digit = |byte: &u8| byte.is_ascii_hexdigit();
        let is_mark = match rest.as_bytes() {
            [b'<', one, two, b'>', ..] => is_digit(one) && is_digit(two),
            _ => false,
        };
        let length = if is_mark { 4 } else { letter.len_utf8() };
        plain.push(
            if is_mark || (!letter.is_ascii() && letter.is_alphabetic()) {
                'e'
            } else {
                letter
            },
        );
        rest = rest.get(length..).unwrap_or_default();
    }
    plain
}

fn template_by(path: &str, settled: impl Fn(&str) -> String) -> String {
    let mut template = String::new();
    for (depth, segment) in segments(path).enumerate() {
        let segment = settled(segment);
        let length = template.len() + 1 + segment.len() + 1 + REST.len();
        if depth == MAX_DEPTH || length > MAX_LENGTH {
            template.push('/');
            template.push_str(REST);
            return template;
        }
        template.push('/');
        template.push_str(&segment);
    }
    if template.is_empty() {
        template.push('/');
    }
    template
}

/// The segments that are not empty, without the query.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    // Parameters follow a semicolon, such as a session id.
    let without_parameters = |segment: &'_ str| segment.find(';').unwrap_or(segment.len());
    path.split('/')
        .map(move |segment| &segment[..without_parameters(segment)])
        .filter(|segment| !segment.is_empty())
}

/// Replaces a segment until it no longer changes.
fn settled(segment: &str) -> String {
    let mut settled = segment.to_owned();
    for _ in 0..MAX_ROUNDS {
        let next = replaced(&settled);
        if next == settled {
            return settled;
        }
        settled = next;
    }
    "{text}".to_owned()
}

fn replaced(segment: &str) -> String {
    if segment == REST || is_placeholder(segment) {
        return segment.to_owned();
    }
    if let Some(name) = first(SEGMENTS, segment) {
        return name.to_owned();
    }
    let mut whole = String::new();
    let (mut are_names, mut parts) = (true, 0);
    for part in segment.split_inclusive(SEPARATORS) {
        let word = part.trim_end_matches(SEPARATORS);
        let named = first(PARTS, word).filter(|_| !is_placeholder(word));
        are_names &= named.is_some() || is_placeholder(word) || word.is_empty();
        whole.push_str(named.unwrap_or(word));
        whole.push_str(&part[word.len()..]);
        parts += 1;
    }
    // Numbers between separators are one id: an address, a version, a range.
    if are_names && (parts > 1 || whole.ends_with(SEPARATORS)) {
        "{id}".to_owned()
    } else {
        whole
    }
}

fn first(table: &[(&'static str, Looks)], text: &str) -> Option<&'static str> {
    let row = table.iter().find(|(_, looks)| looks(text));
    row.map(|(name, _)| *name)
}

fn is_placeholder(text: &str) -> bool {
    let tables = SEGMENTS.iter().chain(PARTS);
    tables.map(|(name, _)| *name).any(|name| name == text)
}

/// Whether a character may be kept. Braces are reserved for placeholders.
fn may_be_kept(c: char) -> bool {
    c.is_ascii_alphanumeric() || SEPARATORS.contains(&c) || matches!(c, '{' | '}')
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_uuid(text: &str) -> bool {
    let mut groups = text.split('-');
    let has = |group: Option<&str>, length| {
        group.is_some_and(|group| {
            group.len() == length && group.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    };
    [8, 4, 4, 4, 12]
        .into_iter()
        .all(|length| has(groups.next(), length))
        && groups.next().is_none()
}

/// Crockford's base 32; 48 bits of time and 80 random bits.
fn is_ulid(text: &str) -> bool {
    let is_digit = |byte: u8| {
        byte.is_ascii_alphanumeric()
            && !matches!(byte.to_ascii_uppercase(), b'I' | b'L' | b'O' | b'U')
    };
    text.len() == 26
        && text.bytes().all(is_digit)
        && text.bytes().next().is_some_and(|byte| byte <= b'7')
}

fn is_date(text: &str) -> bool {
    let mut parts = text.split('-');
    let has = |part: Option<&str>, length| {
        part.is_some_and(|part| part.len() == length && is_digits(part))
    };
    [4, 2, 2]
        .into_iter()
        .all(|length| has(parts.next(), length))
        && parts.next().is_none()
}

/// Hexadecimal: from 6 characters on with a digit, from 12 on without one.
fn is_hash(text: &str) -> bool {
    let has_digit = text.bytes().any(|byte| byte.is_ascii_digit());
    text.len() >= if has_digit { 6 } else { 12 }
        && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Long, and of both cases or of letters and digits: base 64, base 62, base 32; or longer than
/// words are.
fn is_token(text: &str) -> bool {
    let has = |of: fn(&u8) -> bool| text.bytes().any(|byte| of(&byte));
    let upper = has(u8::is_ascii_uppercase);
    let lower = has(u8::is_ascii_lowercase);
    let digit = has(u8::is_ascii_digit);
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    // Camel case, too: its letters do not distinguish a name from a token.
    let is_mixed = text.len() >= 16 && upper && lower && (digit || is_word);
    is_mixed || (is_word && text.len() > MAX_WORD) || has_no_vowels(text)
}

/// Words have a vowel among six letters.
fn has_no_vowels(text: &str) -> bool {
    let is_consonant = |byte: &u8| {
        byte.is_ascii_alphabetic()
            && !matches!(
                byte.to_ascii_lowercase(),
                b'a' | b'e' | b'i' | b'o' | b'u' | b'y'
            )
    };
    text.len() >= 8
        && text
            .as_bytes()
            .windows(6)
            .any(|letters| letters.iter().all(is_consonant))
}

/// Letters and digits alternate, or all are capitals: a booking code, an article number. Not `v2`,
/// `oauth2`, `utf8`, `3d`.
fn is_code(text: &str) -> bool {
    if text.len() >= 6 && text.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return true;
    }
    let digit = |byte: &u8| byte.is_ascii_digit();
    let leading = text.bytes().take_while(digit).count();
    let trailing = text.bytes().rev().take_while(digit).count();
    let inner = text.get(leading..text.len().saturating_sub(trailing));
    let is_mixed = inner.is_none_or(|inner| inner.bytes().any(|byte| byte.is_ascii_digit()));
    is_mixed || leading > 1 || trailing > 2 || (leading > 0 && trailing > 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(path: &str, expected: &str) {
        assert_eq!(template(path), expected, "{path}");
    }

    #[test]
    fn routes_keep_names_and_replace_ids() {
        check("/", "/");
        check("", "/");
        check("/shop/4711/cart", "/shop/{id}/cart");
        check("/api/v2/users", "/api/v2/users");
        check("/oauth2/token.php", "/oauth2/token.php");
        check("/u/0af76519-16cd-43dd-8448-eb211c80319c", "/u/{uuid}");
        check("/t/01ARZ3NDEKTSV4RRFFQ69G5FAV", "/t/{ulid}");
        check("/c/d41d8cd98f00b204e9800998ecf8427e/x", "/c/{hash}/x");
        check("/d/2024-01-15/list", "/d/{date}/list");
        check("/m/alice@example.org", "/m/{email}");
        check("/m/alice%40example.org", "/m/{text}");
        check("/s/caf%C3%A9", "/s/{text}");
        check("/order-4711/page-2", "/order-{id}/page-{id}");
        check("/ip/192.168.1.1", "/ip/{id}");
        check("/b/QWERTY", "/b/{token}");
        check("/b/AB12XY", "/b/{token}");
        check("/reset/xK9-aB_3zQpLmN0r", "/reset/{token}");
        check("/reset/mfrggzdfmztwq2lk", "/reset/{token}");
        check("/reset/kjhqwzxcvbnm", "/reset/{token}");
        check("/app.3f2a1b9c.js", "/app.{hash}.js");
        check("//shop//", "/shop");
        check("/a;jsessionid=SECRET/b", "/a/b");
    }

    #[test]
    fn a_query_is_no_part_of_a_template() {
        check("/shop?token=secret", "/shop");
        check("/shop#secret", "/shop");
        check("/?a=/b/c", "/");
    }

    #[test]
    fn deep_or_long_routes_are_cut_between_segments() {
        check("/a/b/c/d/e/f/g/h", "/a/b/c/d/e/f/g/h");
        check("/a/b/c/d/e/f/g/h/i/j", "/a/b/c/d/e/f/g/h/**");
        let long = "/profile-settings".repeat(8);
        check(&long, &format!("{}/**", "/profile-settings".repeat(6)));
        check(&format!("/{}", "a-".repeat(400)), "/{text}");
    }

    #[test]
    fn scripts_keep_letters_and_have_no_ids() {
        let check = |path: &str, expected: &str| assert_eq!(template_of_file(path), expected);
        check("/srv/müller/été.php", "/srv/müller/été.php");
        check("/srv/日本/m<fc>ller.php", "/srv/日本/m<fc>ller.php");
        check("/srv/4815162342/müller", "/srv/{id}/müller");
        check("Command line code", "Command line code");
        check("Command line code 4815", "/{text}");
        check("/srv/müller 4815/a.php", "/srv/{text}/a.php");
        check("/srv/é4815162342é", "/srv/{text}");
        check(&format!("/srv/{}", "ü".repeat(500)), "/srv/{text}");
        // A request's path may be what somebody typed.
        assert_eq!(template("/s/müller"), "/s/{text}");
    }

    #[test]
    fn the_administrators_rules_come_first_in_their_order() {
        let rules = ["/shop/*/cart=cart", "/shop/**=shop", "/=home"];
        let rules = rules.map(|rule| RouteRule::parse(rule).unwrap());
        let rules = RouteRules::new(rules.to_vec()).unwrap();
        let check = |path: &str, expected: &str| assert_eq!(rules.route(path), expected);
        check("/shop/4711/cart", "cart");
        check("/shop/4711/cart/x", "shop");
        check("/shop", "shop");
        check("/", "home");
        check("/other/4711", "/other/{id}");
    }

    #[test]
    fn rules_without_glob_or_too_many_are_refused() {
        for rule in [
            "shop=x", "/shop", "/shop=", "/a*=x", "/**/a=x", "/a=x y", "/a=x?y",
        ] {
            assert!(RouteRule::parse(rule).is_err(), "{rule}");
        }
        assert!(RouteRule::parse(&format!("/{}=x", "a".repeat(MAX_GLOB))).is_err());
        let rule = RouteRule::parse("/a=x").unwrap();
        assert!(RouteRules::new(vec![rule; MAX_RULES + 1]).is_err());
    }

    /// Paths of all kinds of segments.
    fn path() -> impl Strategy<Value = String> {
        let segment = prop_oneof![
            "[0-9]{1,20}",
            "[a-z]{1,12}",
            "[A-Za-z0-9_.~:,+-]{1,60}",
            "[0-9a-f]{6,40}",
            "[A-Za-z]{1,8}-[a-z0-9]{1,4}-[0-9]{1,3}",
            "\\PC{0,20}",
            "\\{[a-z]{1,6}\\}",
            Just("**".to_owned()),
        ];
        proptest::collection::vec(segment, 0..14).prop_map(|segments| segments.join("/"))
    }

    proptest! {
        #[test]
        fn a_template_is_its_own_template(path in path()) {
            let once = template(&path);
            prop_assert_eq!(template(&once), once);
        }

        #[test]
        fn templates_are_bounded_without_query_or_number(path in path()) {
            let template = template(&path);
            prop_assert!(template.len() <= MAX_LENGTH && template.starts_with('/'));
            prop_assert!(!template.contains(['?', '#', '%', '@', ' ']));
            prop_assert!(!template.split('/').any(is_digits));
            prop_assert!(template.split('/').count() <= MAX_DEPTH + 2);
        }

        #[test]
        fn no_uuid_hash_number_or_token_survives(id in prop_oneof![
            "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            "[0-9a-f]{16,64}",
            "[0-9]{1,30}",
            "[A-Z][a-z][0-9][A-Za-z0-9_-]{13,40}",
        ]) {
            let template = template(&format!("/a/{id}/b"));
            prop_assert!(!template.contains(&id));
        }
    }
}
