//! Pages drawn from stored profiles: the flame graph of one, and the comparison of two.
//!
//! Invariant: at most one page is drawn or sent at a time, and every profile or list that is opened
//! for it has its own permit.

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use phpprof_profile::alike::alike;
use phpprof_profile::{
    DecodeLimits as Bounds, NoiseScale, Packed, SampleSource as _, View, ViewError, page, timeline,
};

use super::{LARGEST_DRAWN, LARGEST_PAGE, NAMES_DRAWN, Results, TAKEN_WITHIN, drawn};
use crate::http::answers::{busy, html, refuse, sized};
use crate::sampler::object_keys::{MERGED, REQUESTS, UID_LENGTH, below};
use crate::storage::collector::merged_bounds;
use crate::storage::store::StoreError;

/// The flame graph of the merged profile in this folder.
pub(super) async fn flame(results: &Results, folder: &str) -> Result<Response, StoreError> {
    let list = below(results.store.prefix(), &format!("{folder}/{REQUESTS}"));
    let read = async {
        // Most requests have no list. A page without it is better than no page.
        let list = results.store.read(&list, timeline::MAX_BYTES as u64).await;
        let list = list.ok();
        // The list takes the place of another upload.
        let turns = 1 + u32::from(list.is_some());
        let turn = results.desk.clone().acquire_many_owned(turns).await;
        let merged = merged(results, folder).await?;
        let title = title(folder);
        Ok((turn, move || draw(merged, list, &title)))
    };
    drawn_of(results, read).await
}

/// The comparison of the merged profiles in these folders.
pub(super) async fn comparison(
    results: &Results,
    before: &str,
    after: &str,
) -> Result<Response, StoreError> {
    let read = async {
        let turn = results.desk.clone().acquire_many_owned(2).await;
        let title = format!("{} → {}", title(before), title(after));
        let before = merged(results, before).await?;
        let after = merged(results, after).await?;
        Ok((turn, move || compare(before, after, &title)))
    };
    drawn_of(results, read).await
}

/// The answer with a page, once it is this request's turn. `read` gives the permits of what it has
/// read, and a function that draws the page.
async fn drawn_of<Turn, Draw>(
    results: &Results,
    read: impl Future<Output = Result<(Turn, Draw), StoreError>>,
) -> Result<Response, StoreError>
where
    Turn: Send + 'static,
    Draw: FnOnce() -> Result<String, String> + Send + 'static,
{
    // This always gives a permit, because the semaphore is never closed.
    let Ok(page_turn) = results.pages.clone().acquire_owned().await else {
        return Ok(busy());
    };
    let (turn, draw) = read.await?;
    let page = tokio::task::spawn_blocking(move || {
        // The client may be gone before the page is drawn, so this task keeps the permits.
        let _turn = turn;
        draw().map(|page| (page, page_turn))
    });
    Ok(match page.await {
        Ok(Ok((page, turn))) => {
            let length = page.len();
            let page = drawn::body(page, turn, TAKEN_WITHIN);
            sized(html(page, page::CONTENT_SECURITY_POLICY), length as u64)
        }
        Ok(Err(error)) => refuse(StatusCode::UNPROCESSABLE_ENTITY, &error),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    })
}

async fn merged(results: &Results, folder: &str) -> Result<Vec<u8>, StoreError> {
    let key = below(results.store.prefix(), &format!("{folder}/{MERGED}"));
    results.store.read(&key, LARGEST_DRAWN as u64).await
}

fn opened(file: Vec<u8>) -> Result<Packed<Vec<u8>>, String> {
    let bounds = Bounds {
        memory_bytes: NAMES_DRAWN,
        ..merged_bounds()
    };
    Packed::open(file, &bounds).map_err(|error| error.to_string())
}

pub(super) fn draw(file: Vec<u8>, list: Option<Vec<u8>>, title: &str) -> Result<String, String> {
    let profile = opened(file)?;
    let timeline = list.and_then(|list| timeline::decode(&list).ok());
    let timeline = timeline.as_ref();
    let page = page::page_within(&profile, &View::default(), title, timeline, LARGEST_PAGE);
    page.map_err(|error| {
        refusal(
            &error,
            "download the profile, and look at it with kubectl phpprof top",
        )
    })
}

fn compare(before: Vec<u8>, after: Vec<u8>, title: &str) -> Result<String, String> {
    let (before, after) = (opened(before)?, opened(after)?);
    let view = View::default();
    // A reader of this page has no other place to learn that the two were not recorded alike.
    let note = alike(before.head(), after.head(), &view).note();
    let title = note.map_or_else(|| title.to_owned(), |note| format!("{title} ({note})"));
    let page = page::differential_within(
        &before,
        &after,
        &view,
        &title,
        NoiseScale::BY_SAMPLES,
        LARGEST_PAGE,
    );
    page.map_err(|error| refusal(&error, "compare the profiles with kubectl phpprof diff"))
}

fn refusal(error: &ViewError, instead: &str) -> String {
    match error {
        ViewError::PageTooLarge(_) => {
            format!("the page would be larger than a browser can show; {instead}")
        }
        ViewError::NoSuchType { .. } => error.to_string(),
    }
}

/// The namespace and the name of a folder's request.
fn title(folder: &str) -> String {
    let namespace = folder.split('/').next().unwrap_or_default();
    let request = folder.rsplit('/').next().unwrap_or_default();
    let name = request.len().checked_sub(UID_LENGTH + 1);
    let name = name.and_then(|end| request.get(..end)).unwrap_or(request);
    format!("{namespace}/{name}")
}
