//! `$_SERVER`: the engine's own (`PG(http_globals)[TRACK_VARS_SERVER]`), or the one that a worker's
//! script has replaced it by.
//!
//! Invariant: an entry is used only if its key has the name's hash, length and bytes, and its zval
//! has the type.

use super::{
    HttpRequest, MAX_METHOD, MAX_TEXT, RequestPlace, Trail, Wanted, method_of, path_bytes, ranges,
    seen, shown_path, text, trace,
};
use crate::layouts::Layout;
use crate::memory::{Memory, byte_at, half_at, word_at};
use crate::string_hash::hash_of;
use crate::zval::{IS_ARRAY, IS_DOUBLE, IS_STRING, TYPE, ZVAL};

/// `TRACK_VARS_SERVER` (main/php_globals.h).
const TRACK_VARS_SERVER: u64 = 3;
/// How many entries of `$_SERVER` are read.
const MAX_ENTRIES: usize = 512;
/// How many buckets of the symbol table's chain are read.
const MAX_CHAIN: usize = 2;

const URI: usize = 0;
const METHOD: usize = 1;
const SCRIPT: usize = 2;
const ROOT: usize = 3;
const TRACE: usize = 4;
const TIME: usize = 5;
const NAMES: [&[u8]; 6] = [
    b"REQUEST_URI",
    b"REQUEST_METHOD",
    b"SCRIPT_FILENAME",
    b"DOCUMENT_ROOT",
    b"HTTP_TRACEPARENT",
    b"REQUEST_TIME_FLOAT",
];
const LIMITS: [usize; 6] = [MAX_TEXT, MAX_METHOD, MAX_TEXT, MAX_TEXT, 55, 0];

/// Reads the request that a worker's script handles now, from its symbol table.
pub(super) fn iteration<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    place: &RequestPlace,
    wanted: Wanted,
    trail: &mut Trail,
) -> Option<HttpRequest> {
    let table = place
        .executor_globals
        .checked_add(layout.executor_globals.symbol_table as u64)?;
    let (at, zval) = symbol(memory, layout, table)?;
    trail.note(at, &zval);
    entries(memory, layout, &zval, wanted, trail)
}

/// Reads the engine's own.
pub(super) fn built<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    place: &RequestPlace,
    wanted: Wanted,
    trail: &mut Trail,
) -> Option<HttpRequest> {
    let globals = place.core_globals?;
    let offset = layout.core_globals.http_globals as u64 + TRACK_VARS_SERVER * ZVAL as u64;
    let at = globals.checked_add(offset)?;
    let mut zval = [0; ZVAL];
    memory.read(at, &mut zval).ok()?;
    // Once it is built the trail differs.
    trail.note(at, &zval);
    entries(memory, layout, &zval, wanted, trail)
}

/// Address and bytes of the zval of `$_SERVER` in a symbol table.
fn symbol<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    table: u64,
) -> Option<(u64, [u8; ZVAL])> {
    const NAME: &[u8] = b"_SERVER";
    let row = &layout.zend_array;
    let header = ranges(memory, &[(table, row.sizeof)])?;
    let data = word_at(&header[0], row.ar_data);
    let hash = hash_of(NAME);
    let slot = (hash as u32 | half_at(&header[0], row.n_table_mask)).wrapping_neg();
    let used = half_at(&header[0], row.n_num_used);
    let mut index = memory.half(data.checked_sub(u64::from(slot) * 4)?).ok()?;
    for _ in 0..MAX_CHAIN {
        if index >= used {
            return None;
        }
        let at = data.checked_add(u64::from(index) * row.bucket_sizeof as u64)?;
        let bucket = ranges(memory, &[(at, row.bucket_sizeof)])?;
        // The hash has 64 bits, and the name seven letters, so the name is not compared.
        if word_at(&bucket[0], row.bucket_h) == hash {
            return Some((at, *bucket[0].first_chunk::<ZVAL>()?));
        }
        index = half_at(&bucket[0], row.bucket_next);
    }
    None
}

fn entries<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    zval: &[u8; ZVAL],
    wanted: Wanted,
    trail: &mut Trail,
) -> Option<HttpRequest> {
    if byte_at(zval, TYPE) != IS_ARRAY {
        return None;
    }
    let row = &layout.zend_array;
    let array = word_at(zval, 0);
    let header = ranges(memory, &[(array, row.sizeof)])?.pop()?;
    let used = half_at(&header, row.n_num_used) as usize;
    let is_packed = half_at(&header, row.flags) & row.packed != 0;
    if used > MAX_ENTRIES || is_packed {
        return None;
    }
    let data = word_at(&header, row.ar_data);
    trail.note(
        array.checked_add(row.ar_data as u64)?,
        header.get(row.ar_data..row.ar_data + 8)?,
    );
    let buckets = ranges(memory, &[(data, used * row.bucket_sizeof)])?.pop()?;
    let is_wanted = [
        wanted.path,
        true,
        wanted.script,
        wanted.script || wanted.root,
        wanted.traceparent,
        true,
    ];
    let mut found: [Option<(u64, &[u8])>; 6] = [None; 6];
    for (index, name) in NAMES
        .iter()
        .enumerate()
        .filter(|(index, _)| is_wanted[*index])
    {
        let hash = hash_of(name);
        let place = buckets
            .chunks_exact(row.bucket_sizeof)
            .position(|bucket| word_at(bucket, row.bucket_h) == hash);
        found[index] = place.and_then(|place| {
            let from = place * row.bucket_sizeof;
            let bucket = buckets.get(from..from + row.bucket_sizeof)?;
            Some((data.checked_add(from as u64)?, bucket))
        });
    }
    values(memory, layout, &found, wanted, trail)
}

/// For each bucket, where its key and its string are, and how much of both tells whether it is the
/// variable. A string is read up to its text.
fn keys_and_texts(
    layout: &Layout,
    found: &[Option<(u64, &[u8])>; 6],
    trail: &mut Trail,
) -> Option<Vec<(u64, usize)>> {
    let (row, string) = (&layout.zend_array, &layout.zend_string);
    let mut asked = Vec::new();
    for (index, entry) in found.iter().enumerate() {
        let Some((at, bucket)) = entry else {
            asked.extend([(0, 0); 2]);
            continue;
        };
        trail.note(*at, bucket.get(..ZVAL)?);
        let is_text = byte_at(bucket, TYPE) == IS_STRING;
        asked.push((
            word_at(bucket, row.bucket_key),
            string.val + NAMES[index].len(),
        ));
        asked.push((word_at(bucket, 0), if is_text { string.val } else { 0 }));
    }
    Some(asked)
}

fn values<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    found: &[Option<(u64, &[u8])>; 6],
    wanted: Wanted,
    trail: &mut Trail,
) -> Option<HttpRequest> {
    let string = &layout.zend_string;
    let asked = keys_and_texts(layout, found, trail)?;
    let heads = ranges(memory, &asked)?;
    let is_named = |index: usize| {
        let key = &heads[2 * index];
        key.get(string.val..) == Some(NAMES[index])
            && word_at(key, string.len) == NAMES[index].len() as u64
    };
    let texts: Vec<(u64, usize)> = (0..NAMES.len())
        .map(|index| {
            let length = usize::try_from(word_at(&heads[2 * index + 1], string.len)).unwrap_or(0);
            let has = is_named(index) && !heads[2 * index + 1].is_empty();
            let length = if has { length.min(LIMITS[index]) } else { 0 };
            (
                asked[2 * index + 1].0.saturating_add(string.val as u64),
                length,
            )
        })
        .collect();
    let read = ranges(memory, &texts)?;
    let value = |index: usize| Some(read[index].as_slice()).filter(|text| !text.is_empty());
    let path = value(URI).map(path_bytes);
    for index in [METHOD, SCRIPT, TRACE] {
        value(index)
            .into_iter()
            .for_each(|text| trail.note(texts[index].0, text));
    }
    if let (Some(uri), Some(path)) = (value(URI), &path) {
        trail.note(texts[URI].0, seen(uri, path));
    }
    let began =
        found[TIME].filter(|(_, bucket)| is_named(TIME) && byte_at(bucket, TYPE) == IS_DOUBLE);
    Some(HttpRequest {
        // Without a method there is no request.
        method: method_of(value(METHOD)?).filter(|_| wanted.method),
        path: path.and_then(|path| shown_path(value(URI)?, &path)),
        script: value(SCRIPT).and_then(text),
        root: value(ROOT).and_then(text),
        trace: value(TRACE).and_then(trace),
        began: began.map(|(_, bucket)| f64::from_bits(word_at(bucket, 0))),
    })
}
