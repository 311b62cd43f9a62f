//! A drawn page while the client receives it.
//!
//! hyper does not poll the body while a connection is silent, so a separate task measures the
//! page's time. Invariant: the page and its permit are dropped as soon as the client has received
//! the page, is gone, or has run out of time.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::stream;
use tokio::sync::OwnedSemaphorePermit;

/// Bytes that are copied from the page at a time. A slice would keep the whole page.
const PIECE: usize = 64 << 10;

/// A page that is not fully sent, and its permit.
struct Page {
    text: String,
    _turn: OwnedSemaphorePermit,
}

struct Shelf(Mutex<Option<Page>>);

impl Shelf {
    fn with<T>(&self, act: impl FnOnce(&mut Option<Page>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The piece that begins here. The page is dropped with its last piece.
    fn piece(&self, begin: usize) -> io::Result<Bytes> {
        self.with(|shelf| {
            let page = shelf.as_ref().ok_or(io::ErrorKind::TimedOut)?;
            let rest = page.text.as_bytes().get(begin..).unwrap_or_default();
            let piece = Bytes::copy_from_slice(rest.get(..PIECE).unwrap_or(rest));
            if piece.len() == rest.len() {
                *shelf = None;
            }
            Ok(piece)
        })
    }
}

/// The page as a body, which breaks off if the client does not receive it in time.
pub(super) fn body(text: String, turn: OwnedSemaphorePermit, within: Duration) -> Body {
    let length = text.len();
    let shelf = Arc::new(Shelf(Mutex::new(Some(Page { text, _turn: turn }))));
    let late = Arc::downgrade(&shelf);
    tokio::spawn(async move {
        tokio::time::sleep(within).await;
        if let Some(shelf) = late.upgrade() {
            shelf.with(|page| *page = None);
        }
    });
    let pieces = stream::try_unfold((shelf, 0), move |(shelf, begin)| async move {
        if begin == length {
            return Ok::<_, io::Error>(None);
        }
        let piece = shelf.piece(begin)?;
        let end = begin + piece.len();
        Ok(Some((piece, (shelf, end))))
    });
    Body::from_stream(pieces)
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use tokio::sync::Semaphore;

    use super::*;

    const WITHIN: Duration = Duration::from_secs(30);

    async fn drawn(turns: &Arc<Semaphore>, length: usize) -> Body {
        let turn = turns.clone().acquire_owned().await.unwrap();
        body("x".repeat(length), turn, WITHIN)
    }

    #[tokio::test(start_paused = true)]
    async fn a_taken_page_gives_its_turn_back() {
        let turns = Arc::new(Semaphore::new(1));
        let mut pieces = drawn(&turns, PIECE + 1).await.into_data_stream();
        assert_eq!(pieces.next().await.unwrap().unwrap().len(), PIECE);
        assert_eq!(turns.available_permits(), 0);
        assert_eq!(pieces.next().await.unwrap().unwrap().len(), 1);
        assert_eq!(turns.available_permits(), 1);
        assert!(pieces.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_untaken_page_is_cut_off_in_time() {
        let turns = Arc::new(Semaphore::new(1));
        let mut pieces = drawn(&turns, 3 * PIECE).await.into_data_stream();
        assert!(pieces.next().await.unwrap().is_ok());
        let next = tokio::time::timeout(WITHIN + Duration::from_secs(1), drawn(&turns, 1)).await;
        assert!(next.is_ok());
        assert!(pieces.next().await.unwrap().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_goes_with_whoever_asked_for_it() {
        let turns = Arc::new(Semaphore::new(1));
        drop(drawn(&turns, 3 * PIECE).await);
        assert_eq!(turns.available_permits(), 1);
    }
}
