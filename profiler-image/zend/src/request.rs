//! Reads the request that a worker serves: its method, path, script, and its `traceparent`.
//!
//! They are read where the SAPI keeps them, in a few gathers. [`Trail`] has the words through which
//! they were read: while these are the same, the request is the same. What this module does not do:
//! read a query string, a cookie, a body or another header. A URI is cut at its first byte that is
//! not path before it leaves this module.
//! Invariant: every length, chain and read is bounded, and inconsistent data is `None`.

mod apache;
mod fastcgi;
mod server;

use std::cell::Cell;

use crate::layouts::Layout;
use crate::memory::{END_OF_USER_SPACE, Memory, MemoryFault, Piece, word_at};
use crate::shown::{show_whole, without_cut_character};

/// `sapi_globals` up to `request_info.request_uri`: the pointers that the beginning of a request
/// sets.
pub const SLICE: usize = 56;
/// Gathers for one request; the caller needs one more to check whether it is still the same.
const MAX_GATHERS: u32 = 7;
/// The longest path of a URI, and the longest name of a script, in bytes.
const MAX_TEXT: usize = 512;
/// The longest method in bytes; `VERSION-CONTROL` (RFC 3253) is the longest in use.
const MAX_METHOD: usize = 20;
const PAGE: u64 = 4096;
/// `SG(server_context)` of php-cgi without FastCGI (sapi/cgi/cgi_main.c).
const PLAIN_CGI: u64 = 1;

/// Where a SAPI keeps its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestSource {
    /// php-fpm and php-cgi: the FastCGI environment. `request_info.request_uri` is SCRIPT_NAME
    /// there.
    FastCgi,
    /// The built-in server: `request_info.request_uri` is the requested URI.
    RequestInfo,
    /// `$_SERVER`, which it also builds again for each request of a worker. Its `request_info` has
    /// the URI after rewrites, and no script in `path_translated`.
    FrankenPhp,
    /// mod_php: the client's request line.
    Apache,
    /// A worker on the command line that serves requests, such as RoadRunner's: `$_SERVER` of this
    /// iteration.
    Iteration,
    /// The command line: a script without a request.
    Script,
    /// An unknown SAPI: `$_SERVER`, once the engine has built it.
    Server,
}

impl RequestSource {
    /// The source for `sapi_module.name`; `is_relayed` if the worker waits for requests on a pipe
    /// or socket.
    #[must_use]
    pub fn of(layout: &Layout, sapi: &str, is_relayed: bool) -> Self {
        match sapi {
            "fpm-fcgi" | "cgi-fcgi" if layout.fcgi_request.has_env != 0 => Self::FastCgi,
            "apache2handler" => Self::Apache,
            "cli-server" => Self::RequestInfo,
            "frankenphp" => Self::FrankenPhp,
            "cli" | "phpdbg" | "embed" if is_relayed => Self::Iteration,
            "cli" | "phpdbg" | "embed" => Self::Script,
            _ => Self::Server,
        }
    }
}

/// Where an engine, or a thread of it, has the data of requests.
#[derive(Debug, Clone, Copy)]
pub struct RequestPlace {
    /// Depends on the SAPI.
    pub source: RequestSource,
    /// The address of `EG`.
    pub executor_globals: u64,
    /// The address of `PG`, which has `$_SERVER`.
    pub core_globals: Option<u64>,
}

/// Which properties to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The request's method.
    pub method: bool,
    /// Its path.
    pub path: bool,
    /// The script that serves it, and the document root.
    pub script: bool,
    /// The document root.
    pub root: bool,
    /// The ids in its header `traceparent`.
    pub traceparent: bool,
}

/// The properties of a request; each is `None` if it is not wanted or not known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HttpRequest {
    /// At most 20 bytes.
    pub method: Option<String>,
    /// Without query, scheme and host; begins with a slash.
    pub path: Option<String>,
    /// The file of its script.
    pub script: Option<String>,
    /// `DOCUMENT_ROOT`.
    pub root: Option<String>,
    /// The ids of its trace and of its parent span: 32 hexadecimal digits, a dash, and 16. They are
    /// one text because they change together.
    pub trace: Option<String>,
    /// Unix time in seconds: `$_SERVER['REQUEST_TIME_FLOAT']`, if that is read.
    pub began: Option<f64>,
}

/// The words and bytes through which a request was read: while they are all the same, reading it
/// again would give the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trail {
    /// Address and length of each range, in the order of their bytes.
    pub ranges: Vec<(u64, usize)>,
    /// Their content, one range after the other.
    pub bytes: Vec<u8>,
}

impl Trail {
    fn note(&mut self, address: u64, bytes: &[u8]) {
        self.ranges.push((address, bytes.len()));
        self.bytes.extend_from_slice(bytes);
    }
}

/// Reads the request of a worker with these first bytes of `sapi_globals`. If there is no request,
/// the trail tells when to look again.
pub fn read<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    place: &RequestPlace,
    slice: &[u8; SLICE],
    wanted: Wanted,
) -> (Option<HttpRequest>, Trail) {
    let mut trail = Trail::default();
    let reads = Reads {
        memory,
        left: Cell::new(MAX_GATHERS),
    };
    let context = word_at(slice, layout.sapi_globals.server_context);
    let request = match place.source {
        // Without FastCGI php-cgi has no environment except its process's.
        RequestSource::FastCgi if context == PLAIN_CGI => {
            server::built(&reads, layout, place, wanted, &mut trail)
        }
        RequestSource::FastCgi => fastcgi::read(&reads, layout, context, slice, wanted, &mut trail),
        RequestSource::RequestInfo | RequestSource::Apache => {
            // Between two requests `$_SERVER` is still the earlier one's.
            let is_traced =
                wanted.traceparent && word_at(slice, layout.sapi_globals.request_method) != 0;
            let traced =
                is_traced.then(|| traced(&reads, layout, place, slice, wanted, &mut trail));
            traced.flatten().or_else(|| match place.source {
                RequestSource::Apache => apache::read(&reads, layout, slice, wanted, &mut trail),
                _ => request_info(&reads, layout, slice, wanted, &mut trail),
            })
        }
        // Without a method no request is being served.
        RequestSource::FrankenPhp if word_at(slice, layout.sapi_globals.request_method) == 0 => {
            None
        }
        RequestSource::FrankenPhp | RequestSource::Server => {
            server::built(&reads, layout, place, wanted, &mut trail)
                .or_else(|| method(&reads, layout, slice, wanted, &mut trail))
        }
        RequestSource::Script => script(&reads, layout, slice, wanted, &mut trail),
        RequestSource::Iteration => server::iteration(&reads, layout, place, wanted, &mut trail),
    };
    (request, trail)
}

/// For SAPIs whose headers cannot be read in a few gathers: `$_SERVER`, once the engine has built
/// it, except for the script, which has the same name before that.
fn traced<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    place: &RequestPlace,
    slice: &[u8],
    wanted: Wanted,
    trail: &mut Trail,
) -> Option<HttpRequest> {
    let of_server = Wanted {
        script: false,
        // The script's name must not depend on whether `$_SERVER` is built.
        root: false,
        ..wanted
    };
    let request = server::built(memory, layout, place, of_server, trail)?;
    let script = script(memory, layout, slice, wanted, trail)?.script;
    Some(HttpRequest {
        script,
        began: None,
        ..request
    })
}

fn request_info<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    slice: &[u8],
    wanted: Wanted,
    trail: &mut Trail,
) -> Option<HttpRequest> {
    let row = &layout.sapi_globals;
    let pointer = |is_wanted: bool, at: usize| if is_wanted { word_at(slice, at) } else { 0 };
    let [method, uri, script] = c_strings(
        memory,
        [
            // Without a method there is no request.
            (pointer(true, row.request_method), MAX_METHOD),
            (pointer(wanted.path, row.request_uri), MAX_TEXT),
            (pointer(wanted.script, row.path_translated), MAX_TEXT),
        ],
    )?;
    let path = uri.as_deref().map(path_bytes);
    for (at, text) in [
        (row.request_method, &method),
        (row.path_translated, &script),
    ] {
        text.iter()
            .for_each(|text| trail.note(word_at(slice, at), text));
    }
    if let (Some(uri), Some(path)) = (&uri, &path) {
        trail.note(word_at(slice, row.request_uri), seen(uri, path));
    }
    Some(HttpRequest {
        method: method_of(&method?).filter(|_| wanted.method),
        path: path.and_then(|path| shown_path(uri.as_deref()?, &path)),
        script: script.as_deref().and_then(text),
        ..HttpRequest::default()
    })
}

/// The known properties of a request whose `$_SERVER` is not built yet.
fn method<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    slice: &[u8],
    wanted: Wanted,
    trail: &mut Trail,
) -> Option<HttpRequest> {
    let at = word_at(slice, layout.sapi_globals.request_method);
    let [method] = c_strings(memory, [(at, MAX_METHOD)])?;
    let method = method?;
    trail.note(at, &method);
    Some(HttpRequest {
        method: method_of(&method).filter(|_| wanted.method),
        ..HttpRequest::default()
    })
}

fn script<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    slice: &[u8],
    wanted: Wanted,
    trail: &mut Trail,
) -> Option<HttpRequest> {
    let at = word_at(slice, layout.sapi_globals.path_translated);
    let [script] = c_strings(memory, [(if wanted.script { at } else { 0 }, MAX_TEXT)])?;
    script.iter().for_each(|text| trail.note(at, text));
    Some(HttpRequest {
        script: script.as_deref().and_then(text),
        ..HttpRequest::default()
    })
}

/// A memory that fails after this many calls.
struct Reads<'a, M: Memory + ?Sized> {
    memory: &'a M,
    left: Cell<u32>,
}

impl<M: Memory + ?Sized> Reads<'_, M> {
    fn take(&self) -> Result<(), MemoryFault> {
        let left = self
            .left
            .get()
            .checked_sub(1)
            .ok_or(MemoryFault::Unmapped)?;
        self.left.set(left);
        Ok(())
    }
}

impl<M: Memory + ?Sized> Memory for Reads<'_, M> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        self.take()?;
        self.memory.read(address, bytes)
    }

    fn gather(&self, pieces: &mut [Piece<'_>]) -> Result<(), MemoryFault> {
        self.take()?;
        self.memory.gather(pieces)
    }
}

/// Reads ranges in one gather, each an address and a length; empty ones are skipped.
fn ranges<M: Memory + ?Sized>(memory: &M, wanted: &[(u64, usize)]) -> Option<Vec<Vec<u8>>> {
    let mut bytes: Vec<Vec<u8>> = wanted.iter().map(|&(_, length)| vec![0; length]).collect();
    let mut pieces: Vec<Piece<'_>> = wanted
        .iter()
        .zip(&mut bytes)
        .filter(|((_, length), _)| *length > 0)
        .map(|(&(address, _), bytes)| Piece { address, bytes })
        .collect();
    if pieces
        .iter()
        .any(|piece| piece.address >= END_OF_USER_SPACE)
    {
        return None;
    }
    if !pieces.is_empty() {
        memory.gather(&mut pieces).ok()?;
    }
    Some(bytes)
}

/// How much of a text is read at once: the part on its first page, which is mapped.
fn on_page(address: u64, length: usize) -> usize {
    usize::try_from(PAGE - address % PAGE).map_or(length, |rest| length.min(rest))
}

/// C strings of at most this many bytes, with their end: the NUL, or the limit. A null pointer
/// gives an empty one.
fn c_strings<M: Memory + ?Sized, const N: usize>(
    memory: &M,
    wanted: [(u64, usize); N],
) -> Option<[Option<Vec<u8>>; N]> {
    let first = wanted.map(|(at, length)| (at, if at == 0 { 0 } else { on_page(at, length) }));
    let begun = ranges(memory, &first)?;
    // Those that continue on the next page.
    let mut rest = [(0, 0); N];
    for (index, text) in begun.iter().enumerate() {
        let (at, length) = wanted[index];
        if !text.is_empty() && !text.contains(&0) && text.len() < length {
            rest[index] = (at + text.len() as u64, length - text.len());
        }
    }
    let ends = ranges(memory, &rest)?;
    let mut strings = [const { None }; N];
    for (index, (mut text, end)) in begun.into_iter().zip(ends).enumerate() {
        text.extend(end);
        let length = text.iter().position(|&byte| byte == 0);
        text.truncate(length.map_or(text.len(), |length| length + 1));
        strings[index] = (wanted[index].0 != 0).then_some(text);
    }
    Some(strings)
}

/// A text for users, up to its NUL; `None` if it is empty. One that may have been cut ends with a
/// mark.
fn text(bytes: &[u8]) -> Option<String> {
    let bytes = bytes.split(|&byte| byte == 0).next()?;
    let mut text = String::new();
    if bytes.len() < MAX_TEXT {
        show_whole(bytes, &mut text);
    } else {
        show_whole(without_cut_character(bytes), &mut text);
        text.push('…');
    }
    (!text.is_empty()).then_some(text)
}

/// A method of RFC 9110: a token; here only of capitals.
fn method_of(bytes: &[u8]) -> Option<String> {
    let method = text(bytes)?;
    let may_be = |byte: u8| byte.is_ascii_uppercase() || byte == b'-';
    (method.len() < MAX_METHOD && method.bytes().all(may_be)).then_some(method)
}

/// The range of a URI's path: from the first slash after an authority to the first byte that is not
/// path.
fn path_bytes(uri: &[u8]) -> std::ops::Range<usize> {
    let is_path = |byte: &u8| !matches!(byte, b'?' | b'#' | 0..=b' ' | 0x7f);
    let end = uri
        .iter()
        .position(|byte| !is_path(byte))
        .unwrap_or(uri.len());
    let begin = match uri[..end].windows(3).position(|three| three == b"://") {
        // An authority may have a user and a password.
        Some(scheme) if uri.first() != Some(&b'/') => {
            let authority = scheme + 3;
            let slash = uri[authority..end].iter().position(|&byte| byte == b'/');
            slash.map_or(end, |slash| authority + slash)
        }
        _ => 0,
    };
    begin..end
}

/// The path, with the byte that ends it. The bytes after it may be secret.
fn seen<'a>(uri: &'a [u8], path: &std::ops::Range<usize>) -> &'a [u8] {
    &uri[..uri.len().min(path.end + 1)]
}

fn shown_path(uri: &[u8], path: &std::ops::Range<usize>) -> Option<String> {
    let path = &uri[path.clone()];
    match path.first() {
        Some(b'/') => Some(String::from_utf8_lossy(path).into_owned()),
        // `OPTIONS *`, and `CONNECT host`.
        Some(_) => None,
        None => (!uri.is_empty()).then(|| "/".to_owned()),
    }
}

/// The ids of trace and span in a `traceparent` (W3C Trace Context, version 00): `00-<32
/// hexadecimal digits>-<16>-<2>`.
fn trace(header: &[u8]) -> Option<String> {
    let mut parts = header.split(|&byte| byte == b'-');
    let mut next = |length: usize| {
        let is_hexadecimal = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let part = parts.next()?;
        (part.len() == length && part.iter().all(is_hexadecimal)).then_some(part)
    };
    let (_, trace, span, _) = (next(2)?, next(32)?, next(16)?, next(2)?);
    // An id of zeros is invalid, and makes the whole header so (sections 3.2.2.3 and 3.2.2.4).
    let is_one = |id: &[u8]| id.iter().any(|&byte| byte != b'0');
    let ids = (is_one(trace) && is_one(span)).then(|| [trace, b"-", span].concat())?;
    text(&ids)
}

#[cfg(test)]
mod tests;
