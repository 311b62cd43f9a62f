//! The FastCGI environment of a request: `fcgi_request.env`, which `SG(server_context)` leads to
//! (main/fastcgi.c).
//!
//! Invariant: a value is used only if its bucket has the parameter's hash, length and name.

use super::{
    HttpRequest, MAX_METHOD, MAX_TEXT, Trail, Wanted, c_strings, method_of, path_bytes, ranges,
    seen, shown_path, text, trace,
};
use crate::layouts::{FcgiRequest, Layout};
use crate::memory::{Memory, half_at, word_at};

/// `FCGI_HASH_TABLE_SIZE`.
const SLOTS: usize = 128;
/// How many buckets of a chain are read.
const MAX_CHAIN: usize = 3;
/// Bytes of a `traceparent` of version 00.
const TRACEPARENT: usize = 55;

const URI: usize = 0;
const METHOD: usize = 1;
const ROOT: usize = 2;
const TRACE: usize = 3;
const NAMES: [&[u8]; 4] = [
    b"REQUEST_URI",
    b"REQUEST_METHOD",
    b"DOCUMENT_ROOT",
    b"HTTP_TRACEPARENT",
];

/// A bucket that may hold a parameter.
#[derive(Clone, Copy)]
struct FcgiBucket {
    var: u64,
    val: u64,
    val_len: usize,
}

/// The text of a parameter, and its address.
type Value = (u64, Vec<u8>);

/// `FCGI_HASH_FUNC`; each name here has at least four bytes.
pub(super) fn hash_of(name: &[u8]) -> u32 {
    let at = |index: usize| name.get(index).copied().map_or(0, u32::from);
    let length = name.len();
    (at(3) << 2) + (at(length - 2) << 4) + (at(length - 1) << 2) + length as u32
}

pub(super) fn read<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    context: u64,
    slice: &[u8],
    wanted: Wanted,
    trail: &mut Trail,
) -> Option<HttpRequest> {
    let row = &layout.fcgi_request;
    if context == 0 || !context.is_multiple_of(8) {
        return None;
    }
    let table_at = context.checked_add(row.env as u64)?;
    let read = ranges(
        memory,
        &[
            (context.checked_add(row.has_env as u64)?, 4),
            (table_at, SLOTS * 8),
        ],
    )?;
    if half_at(&read[0], 0) != 1 {
        return None;
    }
    // Each request has a method: it proves that this is an environment.
    let is_wanted = [
        wanted.path,
        true,
        wanted.script || wanted.root,
        wanted.traceparent,
    ];
    let buckets = buckets(memory, row, table_at, &read[1], is_wanted, trail)?;
    let values = values(memory, &buckets)?;
    let value = |index: usize| values[index].as_ref().map(|(at, text)| (*at, &text[..]));
    let (method_at, method) = value(METHOD)?;
    trail.note(method_at, method);
    let mut request = HttpRequest {
        method: method_of(method).filter(|_| wanted.method),
        root: value(ROOT).and_then(|(_, root)| text(root)),
        ..HttpRequest::default()
    };
    if let Some((at, uri)) = value(URI) {
        let path = path_bytes(uri);
        trail.note(at, seen(uri, &path));
        request.path = shown_path(uri, &path);
    }
    if let Some((at, header)) = value(TRACE) {
        trail.note(at, header);
        request.trace = trace(header);
    }
    if wanted.script {
        let at = word_at(slice, layout.sapi_globals.path_translated);
        let [script] = c_strings(memory, [(at, MAX_TEXT)])?;
        script.iter().for_each(|script| trail.note(at, script));
        request.script = script.as_deref().and_then(text);
    }
    Some(request)
}

/// The buckets of the wanted parameters, whose names still have to be compared.
fn buckets<M: Memory + ?Sized>(
    memory: &M,
    row: &FcgiRequest,
    table_at: u64,
    table: &[u8],
    is_wanted: [bool; 4],
    trail: &mut Trail,
) -> Option<[Option<FcgiBucket>; 4]> {
    let (mut found, mut next) = ([None; 4], [0; 4]);
    for (index, name) in NAMES
        .iter()
        .enumerate()
        .filter(|(index, _)| is_wanted[*index])
    {
        let slot = hash_of(name) as usize % SLOTS * 8;
        next[index] = word_at(table, slot);
        // The document root is the server's, not the request's.
        if index != ROOT {
            trail.note(table_at + slot as u64, table.get(slot..slot + 8)?);
        }
    }
    for _ in 0..MAX_CHAIN {
        let asked = next.map(|at| (at, if at == 0 { 0 } else { row.sizeof }));
        if asked.iter().all(|&(_, length)| length == 0) {
            break;
        }
        let read = ranges(memory, &asked)?;
        for (index, bytes) in read
            .iter()
            .enumerate()
            .filter(|(_, bytes)| !bytes.is_empty())
        {
            if index != ROOT {
                trail.note(next[index], bytes);
            }
            let name = NAMES[index];
            let is_it = half_at(bytes, row.hash_value) == hash_of(name)
                && half_at(bytes, row.var_len) as usize == name.len();
            next[index] = if is_it { 0 } else { word_at(bytes, row.next) };
            if is_it {
                found[index] = Some(FcgiBucket {
                    var: word_at(bytes, row.var),
                    val: word_at(bytes, row.val),
                    val_len: half_at(bytes, row.val_len) as usize,
                });
            }
        }
    }
    Some(found)
}

/// The values of the buckets that have the names of their parameters.
fn values<M: Memory + ?Sized>(
    memory: &M,
    buckets: &[Option<FcgiBucket>; 4],
) -> Option<[Option<Value>; 4]> {
    let limits = [MAX_TEXT, MAX_METHOD, MAX_TEXT, TRACEPARENT];
    let mut asked = Vec::new();
    for (index, bucket) in buckets.iter().enumerate() {
        let bucket = bucket.unwrap_or(FcgiBucket {
            var: 0,
            val: 0,
            val_len: 0,
        });
        let name = if bucket.var == 0 {
            0
        } else {
            NAMES[index].len()
        };
        asked.extend([
            (bucket.var, name),
            (bucket.val, bucket.val_len.min(limits[index])),
        ]);
    }
    let mut read = ranges(memory, &asked)?;
    Some(std::array::from_fn(|index| {
        let is_named = read[2 * index] == NAMES[index];
        is_named.then(|| {
            let text = std::mem::take(&mut read[2 * index + 1]);
            (asked[2 * index + 1].0, text)
        })
    }))
}
