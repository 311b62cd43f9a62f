//! Calls to the API server, bounded in time, and tried once more where an answer is worth it.
//!
//! Watches have clocks of their own. Invariant: a call is over after twice [`ANSWER`] and a pause, whatever the API server does.

use std::future::Future;
use std::time::Duration;

use kube::Error;

use crate::backoff::pause;

/// One try.
const ANSWER: Duration = Duration::from_secs(15);

#[derive(Debug, thiserror::Error)]
#[error("the API server did not answer within {} s", ANSWER.as_secs())]
struct NoAnswer;

/// Asks, and once more after an error that may pass.
pub async fn call<T, F>(ask: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    match once(ask()).await {
        Err(error) if is_transient(&error) => {
            tokio::time::sleep(pause(1)).await;
            once(ask()).await
        }
        answered => answered,
    }
}

async fn once<T>(asked: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match tokio::time::timeout(ANSWER, asked).await {
        Ok(answered) => answered,
        Err(_) => Err(Error::Service(Box::new(NoAnswer))),
    }
}

/// Whether the same call may be answered in a moment: the API server is busy, starts, or was not reached.
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

    /// What comes of a call whose first answers are these codes, and how often it was asked.
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
}
