//! Calls to the API server, with a time limit. A call is retried once if the error may pass.
//!
//! Watches have their own time limits. Invariant: a call ends after at most twice [`ANSWER`] and a
//! pause, whatever the API server does. No more than [`OBJECTS`] objects are in transfer at the
//! same time, however large others have made them.

use std::future::Future;
use std::time::Duration;

use kube::Error;
use tokio::sync::Semaphore;

use crate::backoff::pause;
use crate::reconcile::watches::PAGE;

/// The most simultaneous calls of one task: pods that are patched, objects that are written, labels
/// that are read.
pub(crate) const AT_ONCE: usize = 8;
/// One page, or as many single objects.
pub(crate) const OBJECTS: u32 = PAGE;
static ROOM: Semaphore = Semaphore::const_new(OBJECTS as usize);
/// The time limit of one try, including the wait for room.
const ANSWER: Duration = Duration::from_secs(15);

#[derive(Debug, thiserror::Error)]
#[error("the API server did not answer within {} s", ANSWER.as_secs())]
struct NoAnswer;

/// Reads one object. Tries once more after an error that may pass.
pub async fn call<T, F>(ask: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    twice(&ROOM, 1, ask).await
}

/// Reads a page of [`PAGE`] objects in the same way.
pub async fn call_for_page<T, F>(ask: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    twice(&ROOM, PAGE, ask).await
}

async fn twice<T, F>(room: &Semaphore, objects: u32, ask: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    match once(room, objects, ask()).await {
        Err(error) if is_transient(&error) => {
            tokio::time::sleep(pause(1)).await;
            once(room, objects, ask()).await
        }
        answered => answered,
    }
}

async fn once<T>(
    room: &Semaphore,
    objects: u32,
    asked: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let answered = async {
        // This always gives permits, because the semaphore is never closed.
        let _room = room.acquire_many(objects).await;
        asked.await
    };
    match tokio::time::timeout(ANSWER, answered).await {
        Ok(answered) => answered,
        Err(_) => Err(Error::Service(Box::new(NoAnswer))),
    }
}

/// Whether the same call may succeed in a moment: the API server is busy, is starting, or was not
/// reached.
fn is_transient(error: &Error) -> bool {
    match error {
        Error::Api(status) => matches!(status.code, 408 | 429 | 500 | 502..=504),
        Error::Service(_) | Error::HyperError(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn api(code: u16) -> Error {
        let status = kube::core::Status {
            code,
            ..kube::core::Status::default()
        };
        Error::Api(Box::new(status))
    }

    /// The result of a call whose first answers have these codes, and the number of tries.
    async fn asked(codes: &[u16]) -> (Result<(), Error>, u32) {
        let times = AtomicU32::new(0);
        let answer = call(|| {
            let nth = times.fetch_add(1, Ordering::Relaxed) as usize;
            let code = codes.get(nth).copied();
            async move { code.map_or(Ok(()), |code| Err(api(code))) }
        });
        (answer.await, times.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_pass_is_asked_once_more() {
        assert!(matches!(asked(&[]).await, (Ok(()), 1)));
        assert!(matches!(asked(&[503]).await, (Ok(()), 2)));
        assert!(matches!(asked(&[500, 500]).await, (Err(_), 2)));
        assert!(matches!(asked(&[403]).await, (Err(_), 1)));
        assert!(matches!(asked(&[409]).await, (Err(_), 1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_ends() {
        let silent = call(std::future::pending::<Result<(), Error>>).await;
        let error = silent.expect_err("nobody answered");
        assert!(
            error.to_string().contains("did not answer within 15 s"),
            "{error}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn objects_under_way_never_exceed_their_room() {
        let (now, most) = (AtomicU32::new(0), AtomicU32::new(0));
        let answered = async |objects: u32| {
            let now = now.fetch_add(objects, Ordering::Relaxed) + objects;
            most.fetch_max(now, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        // A separate semaphore, because other tests use the process's own.
        let room = Semaphore::new(OBJECTS as usize);
        let asked = async |objects: u32| {
            let ask = async || {
                answered(objects).await;
                now.fetch_sub(objects, Ordering::Relaxed);
                Ok(())
            };
            twice(&room, objects, ask).await
        };
        let ones = futures::future::try_join_all((0..3 * OBJECTS).map(|_| asked(1)));
        let pages = futures::future::try_join_all((0..2).map(|_| asked(OBJECTS)));
        let all = futures::future::try_join(ones, pages).await;
        assert!(all.is_ok());
        assert_eq!(most.into_inner(), OBJECTS);
    }
}
