//! Apache's mod_php: the client's request line, which `SG(server_context)` leads to.
//!
//! `request_info.request_uri` is the URI after a rewrite or `FallbackResource`: `/index.php` for
//! all requests. Invariant: the line is used only if it begins with the method that the engine
//! knows.

use super::{
    HttpRequest, MAX_METHOD, MAX_TEXT, Trail, Wanted, c_strings, method_of, path_bytes, ranges,
    seen, shown_path, text,
};
use crate::layouts::Layout;
use crate::memory::{Memory, word_at};

/// `php_struct.r` (sapi/apache2handler/php_apache.h). Measured, like the next one, with PHP 8.2 in
/// Debian's Apache 2.4, x86_64; only pointers and ints precede both, and the line is compared with
/// the method.
const REQUEST_REC: u64 = 8;
/// `request_rec.the_request` (httpd.h; part of the ABI of all of 2.4).
const THE_REQUEST: u64 = 48;

pub(super) fn read<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    slice: &[u8],
    wanted: Wanted,
    trail: &mut Trail,
) -> Option<HttpRequest> {
    let row = &layout.sapi_globals;
    let context = word_at(slice, row.server_context);
    let mut line_at = 0;
    if wanted.path {
        let mut at = context;
        for offset in [REQUEST_REC, THE_REQUEST] {
            let pointer = at.checked_add(offset).filter(|_| at != 0)?;
            let word = ranges(memory, &[(pointer, 8)])?;
            trail.note(pointer, &word[0]);
            at = word_at(&word[0], 0);
        }
        line_at = at;
    }
    let method_at = word_at(slice, row.request_method);
    let script_at = word_at(slice, row.path_translated);
    let [method, line, script] = c_strings(
        memory,
        [
            (method_at, MAX_METHOD),
            (line_at, MAX_TEXT),
            (if wanted.script { script_at } else { 0 }, MAX_TEXT),
        ],
    )?;
    let method = method?;
    trail.note(method_at, &method);
    script
        .iter()
        .for_each(|script| trail.note(script_at, script));
    let name = method.split(|&byte| byte == 0).next()?;
    let uri = line
        .as_deref()
        .and_then(|line| line.strip_prefix(name)?.strip_prefix(b" "));
    let path = uri.map(path_bytes);
    if let (Some(uri), Some(path)) = (uri, &path) {
        let address = line_at + name.len() as u64 + 1;
        trail.note(address, seen(uri, path));
    }
    Some(HttpRequest {
        method: method_of(&method).filter(|_| wanted.method),
        path: path.and_then(|path| shown_path(uri?, &path)),
        script: script.as_deref().and_then(text),
        ..HttpRequest::default()
    })
}
