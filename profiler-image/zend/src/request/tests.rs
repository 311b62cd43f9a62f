//! Requests in the memory of a small engine, as each SAPI keeps them.

use super::*;
use crate::layouts::{Machine, layout_of};
use crate::testing::EngineImage;

const ALL: Wanted = Wanted {
    method: true,
    path: true,
    script: true,
    root: true,
    traceparent: true,
};
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
/// What of it and of its span is read.
const IDS: &str = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331";

/// An engine, the beginning of its `sapi_globals`, and where its requests are.
struct Image {
    engine: EngineImage,
    slice: [u8; SLICE],
    place: RequestPlace,
}

impl Image {
    fn new(source: RequestSource) -> Self {
        let engine = EngineImage::new(layout_of(Machine::X86_64, 8, 2).unwrap());
        let place = RequestPlace {
            source,
            executor_globals: engine.executor_globals,
            core_globals: None,
        };
        Self {
            engine,
            slice: [0; SLICE],
            place,
        }
    }

    fn point(&mut self, offset: usize, address: u64) {
        self.slice[offset..offset + 8].copy_from_slice(&address.to_le_bytes());
    }

    fn point_to(&mut self, offset: usize, text: &str) {
        let at = self.engine.c_string(text);
        self.point(offset, at);
    }

    /// An environment of these parameters.
    fn environment(parameters: &[(&str, &str)]) -> Self {
        let mut image = Self::new(RequestSource::FastCgi);
        let row = &image.engine.layout.fcgi_request;
        let context = 0x7000_0000;
        image.engine.room(context, 16_384);
        image.engine.put_half(context, row.has_env, 1);
        image.point(0, context);
        for (name, value) in parameters {
            let (bucket, name_at) = (image.engine.block(), image.engine.c_string(name));
            let value_at = image.engine.c_string(value);
            let slot = fastcgi::hash_of(name.as_bytes()) % 128 * 8;
            let slot = context + row.env as u64 + u64::from(slot);
            let next = image.engine.word(slot).unwrap();
            let engine = &mut image.engine;
            engine.put_half(bucket, row.hash_value, fastcgi::hash_of(name.as_bytes()));
            engine.put_half(bucket, row.var_len, name.len() as u32);
            engine.put_word(bucket, row.var, name_at);
            engine.put_half(bucket, row.val_len, value.len() as u32);
            engine.put_word(bucket, row.val, value_at);
            engine.put_word(bucket, row.next, next);
            engine.put_word(slot, 0, bucket);
        }
        image
    }

    fn read(&self) -> (Option<HttpRequest>, Trail) {
        read(
            &self.engine,
            self.engine.layout,
            &self.place,
            &self.slice,
            ALL,
        )
    }

    fn request(&self) -> HttpRequest {
        self.read().0.unwrap()
    }

    /// The current bytes of a trail's ranges.
    fn again(&self, trail: &Trail) -> Vec<u8> {
        let read = ranges(&self.engine, &trail.ranges).unwrap();
        read.concat()
    }
}

fn shop() -> Image {
    let mut image = Image::environment(&[
        ("QUERY_STRING", "token=SECRET"),
        ("REQUEST_METHOD", "POST"),
        ("REQUEST_URI", "/shop/17?token=SECRET"),
        ("DOCUMENT_ROOT", "/srv/www"),
        (
            "HTTP_TRACEPARENT",
            &format!("00-{TRACE}-b7ad6b7169203331-01"),
        ),
        ("HTTP_COOKIE", "session=SECRET"),
    ]);
    image.point_to(40, "/srv/www/index.php");
    image
}

#[test]
fn fastcgi_environment_tells_request_without_query() {
    let (request, trail) = shop().read();
    let expected = HttpRequest {
        method: Some("POST".to_owned()),
        path: Some("/shop/17".to_owned()),
        script: Some("/srv/www/index.php".to_owned()),
        root: Some("/srv/www".to_owned()),
        trace: Some(IDS.to_owned()),
        began: None,
    };
    assert_eq!(request, Some(expected));
    let seen = String::from_utf8_lossy(&trail.bytes).into_owned();
    assert!(seen.contains("/shop/17?") && !seen.contains("SECRET") && !seen.contains("token"));
}

#[test]
fn trail_changes_with_what_is_read() {
    let (_, trail) = shop().read();
    assert_eq!(shop().again(&trail), trail.bytes);
    for (from, to) in [
        ("/shop/17?", "/shop/18?"),
        ("/shop/17?", "/shop/17/"),
        ("POST", "PUT\0"),
    ] {
        let mut image = shop();
        let at = address_of(&image, from);
        image.engine.put(at, to.as_bytes());
        assert_ne!(image.again(&trail), trail.bytes, "{to}");
    }
}

/// The address of a text.
fn address_of(image: &Image, text: &str) -> u64 {
    let (_, trail) = image.read();
    let mut offset = 0;
    for (address, length) in trail.ranges {
        if trail.bytes[offset..offset + length].starts_with(text.as_bytes()) {
            return address;
        }
        offset += length;
    }
    panic!("no {text} in the trail")
}

/// Other parameters precede it in its chain.
#[test]
fn parameter_is_found_along_its_chain() {
    let same_slot = (0..=255_u8)
        .filter(u8::is_ascii_alphanumeric)
        .map(|letter| format!("AAA{}AAAA", letter as char))
        .filter(|name| {
            fastcgi::hash_of(name.as_bytes()) % 128 == fastcgi::hash_of(b"REQUEST_URI") % 128
        });
    let names: Vec<String> = same_slot.take(2).collect();
    let mut parameters = vec![("REQUEST_METHOD", "GET"), ("REQUEST_URI", "/a")];
    parameters.extend(names.iter().map(|name| (name.as_str(), "SECRET")));
    let request = Image::environment(&parameters).request();
    assert_eq!(request.path.as_deref(), Some("/a"));
}

#[test]
fn environment_without_method_is_no_request() {
    let image = Image::environment(&[("REQUEST_URI", "/a")]);
    assert_eq!(image.read().0, None);
    let mut image = shop();
    let row = &image.engine.layout.fcgi_request;
    image.engine.put_half(0x7000_0000, row.has_env, 0);
    assert_eq!(image.read().0, None);
    assert_eq!(Image::new(RequestSource::FastCgi).read().0, None);
}

#[test]
fn a_chain_that_leads_to_itself_ends() {
    let mut image = Image::environment(&[("REQUEST_METHOD", "GET"), ("REQUEST_URI", "/a")]);
    let row = &image.engine.layout.fcgi_request;
    let slot = u64::from(fastcgi::hash_of(b"REQUEST_URI") % 128) * 8;
    let bucket = image
        .engine
        .word(0x7000_0000 + row.env as u64 + slot)
        .unwrap();
    image.engine.put_half(bucket, row.hash_value, 1);
    image.engine.put_word(bucket, row.next, bucket);
    assert_eq!(image.request().path, None);
}

#[test]
fn built_in_servers_request_is_in_request_info() {
    let mut image = Image::new(RequestSource::RequestInfo);
    image.point_to(8, "GET");
    image.point_to(48, "/shop/17?token=SECRET");
    image.point_to(40, "/srv/www/index.php");
    let (request, trail) = image.read();
    let request = request.unwrap();
    assert_eq!(request.path.as_deref(), Some("/shop/17"));
    assert_eq!(request.script.as_deref(), Some("/srv/www/index.php"));
    assert!(!String::from_utf8_lossy(&trail.bytes).contains("SECRET"));
    assert_eq!(image.again(&trail), trail.bytes);
    // Between two requests.
    image.point(8, 0);
    assert_eq!(image.read().0, None);
}

#[test]
fn apaches_path_is_the_clients_with_method() {
    let with_line = |line: &str| {
        let mut image = Image::new(RequestSource::Apache);
        image.point_to(8, "GET");
        image.point_to(48, "/index.php");
        let (context, request) = (image.engine.block(), image.engine.block());
        let line = image.engine.c_string(line);
        image.engine.put_word(context, 8, request);
        image.engine.put_word(request, 48, line);
        image.point(0, context);
        image.request().path
    };
    let path = with_line("GET /shop/17?token=SECRET HTTP/1.1");
    assert_eq!(path.as_deref(), Some("/shop/17"));
    assert_eq!(with_line("POST /shop/17 HTTP/1.1"), None);
}

/// Puts a table of strings, and a double, at the address of a zval.
fn put_server(image: &mut Image, zval: u64, entries: &[(&str, &str)], time: f64) {
    let engine = &mut image.engine;
    let table = engine.block();
    let mut all: Vec<(&str, u64)> = Vec::new();
    for (name, value) in entries {
        all.push((name, engine.string(value)));
    }
    all.push(("REQUEST_TIME_FLOAT", time.to_bits()));
    engine.put_table(table, &all);
    let row = &engine.layout.zend_array;
    let data = engine.word(table + row.ar_data as u64).unwrap();
    for index in 0..all.len() as u64 {
        let kind = if index + 1 == all.len() as u64 { 5 } else { 6 };
        engine.put_half(data + index * row.bucket_sizeof as u64, 8, kind);
    }
    engine.put_zval(zval, table, 7);
}

#[test]
fn iterations_request_is_in_the_symbol_table() {
    let mut image = Image::new(RequestSource::Iteration);
    let table =
        image.engine.executor_globals + image.engine.layout.executor_globals.symbol_table as u64;
    image
        .engine
        .put_table(table, &[("argv", 1), ("_SERVER", 2)]);
    let row = &image.engine.layout.zend_array;
    let data = image.engine.word(table + row.ar_data as u64).unwrap();
    let zval = data + row.bucket_sizeof as u64;
    assert_eq!(image.read().0, None);
    let entries = [
        ("REQUEST_METHOD", "PUT"),
        (
            "REQUEST_URI",
            "http://user:SECRET@shop.example/cart?token=SECRET",
        ),
        ("HTTP_TRACEPARENT", "00-xyz"),
    ];
    put_server(&mut image, zval, &entries, 1_700_000_000.5);
    let (request, trail) = image.read();
    let request = request.unwrap();
    assert_eq!(request.method.as_deref(), Some("PUT"));
    assert_eq!(request.path.as_deref(), Some("/cart"));
    assert_eq!(request.trace, None);
    assert_eq!(request.began, Some(1_700_000_000.5));
    assert_eq!(image.again(&trail), trail.bytes);
}

#[test]
fn engines_server_is_a_request_once_built() {
    let mut image = Image::new(RequestSource::Server);
    let core = image.engine.block();
    image.place.core_globals = Some(core);
    let zval = core + image.engine.layout.core_globals.http_globals as u64 + 48;
    let zval_at = zval;
    image.engine.room(zval, 16);
    let (request, trail) = image.read();
    assert_eq!(request, None);
    let entries = [("REQUEST_METHOD", "GET"), ("REQUEST_URI", "/a?b")];
    put_server(&mut image, zval_at, &entries, 1.0);
    // Its trail tells that it is time to look again.
    assert_ne!(image.again(&trail), trail.bytes);
    assert_eq!(image.request().path.as_deref(), Some("/a"));
}

#[test]
fn built_server_tells_the_trace() {
    for source in [RequestSource::Apache, RequestSource::RequestInfo] {
        let mut image = Image::new(source);
        let core = image.engine.block();
        image.place.core_globals = Some(core);
        let zval = core + image.engine.layout.core_globals.http_globals as u64 + 48;
        image.engine.room(zval, 16);
        image.point_to(8, "GET");
        image.point_to(40, "/srv/www/index.php");
        let before = image.read().1;
        let header = format!("00-{TRACE}-b7ad6b7169203331-01");
        let entries = [
            ("REQUEST_METHOD", "GET"),
            ("REQUEST_URI", "/shop/17?token=SECRET"),
            ("SCRIPT_FILENAME", "/srv/other/index.php"),
            ("HTTP_TRACEPARENT", header.as_str()),
            ("HTTP_COOKIE", "session=SECRET"),
        ];
        put_server(&mut image, zval, &entries, 1.0);
        assert_ne!(image.again(&before), before.bytes);
        let (request, trail) = image.read();
        let request = request.unwrap();
        assert_eq!(request.trace.as_deref(), Some(IDS));
        assert_eq!(request.path.as_deref(), Some("/shop/17"));
        // The same name as before.
        assert_eq!(request.script.as_deref(), Some("/srv/www/index.php"));
        assert_eq!((request.root, request.began), (None, None));
        assert!(!String::from_utf8_lossy(&trail.bytes).contains("SECRET"));
        image.point(8, 0);
        assert_eq!(image.read().0, None, "between two requests");
    }
}

/// After a request FrankenPHP sets the method to NULL; `$_SERVER` stays until the next one.
#[test]
fn frankenphp_has_a_request_with_its_method() {
    let mut image = Image::new(RequestSource::FrankenPhp);
    let core = image.engine.block();
    image.place.core_globals = Some(core);
    let zval = core + image.engine.layout.core_globals.http_globals as u64 + 48;
    let entries = [("REQUEST_METHOD", "GET"), ("REQUEST_URI", "/a?b")];
    image.engine.room(zval, 16);
    assert_eq!(image.read().0, None);
    image.point_to(8, "GET");
    // Not built yet: the method is known, and a rewritten path is not taken for the client's.
    let method = HttpRequest {
        method: Some("GET".to_owned()),
        ..HttpRequest::default()
    };
    assert_eq!(image.read().0, Some(method));
    image.point(8, 0);
    put_server(&mut image, zval, &entries, 1.0);
    assert_eq!(image.read().0, None);
    image.point_to(8, "GET");
    image.point_to(48, "/index.php");
    assert_eq!(image.request().path.as_deref(), Some("/a"));
}

#[test]
fn command_line_has_a_script_alone() {
    let mut image = Image::new(RequestSource::Script);
    image.point_to(40, "/srv/worker.php");
    let expected = HttpRequest {
        script: Some("/srv/worker.php".to_owned()),
        ..HttpRequest::default()
    };
    assert_eq!(image.request(), expected);
}

#[test]
fn uri_is_cut_after_its_path() {
    let check = |uri: &str, expected: Option<&str>| {
        let path = path_bytes(uri.as_bytes());
        let shown = shown_path(uri.as_bytes(), &path);
        assert_eq!(shown.as_deref(), expected, "{uri}");
    };
    check("/a/b?c", Some("/a/b"));
    check("/a#c", Some("/a"));
    check("/a b", Some("/a"));
    check("/a\nb", Some("/a"));
    check("https://user:pass@host/a?b", Some("/a"));
    check("https://host", Some("/"));
    check("https://host?token", Some("/"));
    check("/go/http://other/x", Some("/go/http://other/x"));
    check("*", None);
    check("host:443", None);
    check("", None);
    check("?a", Some("/"));
}

#[test]
fn a_traceparent_is_validated() {
    let id = |text: &str| trace(text.as_bytes());
    assert_eq!(
        id(&format!("00-{TRACE}-b7ad6b7169203331-01")).as_deref(),
        Some(IDS)
    );
    assert_eq!(
        id(&format!("00-{}-b7ad6b7169203331-01", "0".repeat(32))),
        None
    );
    assert_eq!(id(&format!("00-{TRACE}-{}-01", "0".repeat(16))), None);
    assert_eq!(
        id(&format!("00-{}-b7ad6b7169203331-01", TRACE.to_uppercase())),
        None
    );
    assert_eq!(id(TRACE), None);
    assert_eq!(id("00-SECRET-b7ad6b7169203331-01"), None);
}

#[test]
fn hostile_words_are_read_within_bounds() {
    for byte in [0x01, 0x7f, 0x80, 0xff] {
        for source in [
            RequestSource::FastCgi,
            RequestSource::RequestInfo,
            RequestSource::FrankenPhp,
            RequestSource::Apache,
            RequestSource::Iteration,
            RequestSource::Script,
            RequestSource::Server,
        ] {
            let mut image = Image::new(source);
            image.slice = [byte; SLICE];
            image.place.core_globals = Some(u64::from(byte) << 40);
            let (_, trail) = image.read();
            assert!(trail.bytes.len() < 16_384);
        }
    }
}
