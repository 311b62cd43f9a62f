//! How long users wait for the first sample, and after the last one.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use e2e::requests::{holds, status};
use e2e::{exclusive, is_long_form, pods, promised, say};
use phpprof_crds::condition;
use serde_json::json;

const REQUESTS: usize = 10;
const REQUESTS_IN_SHORT: usize = 4;
const PROMISE: Duration = Duration::from_secs(3);

/// This machine's time. The test assumes that the cluster's nodes have the same clock.
fn unix_now() -> Result<Duration> {
    Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?)
}

/// No other test of this cluster runs at the same time; those on the second one may.
mod quiet {
    use super::*;

    #[test]
    fn sampling_begins_and_ends_within_3_seconds() -> Result<()> {
        exclusive(async |fixture| {
            fixture.start(&[pods::php("web")]).await?;
            let (mut to_first_sample, mut to_complete) = (Vec::new(), Vec::new());
            let requests = if is_long_form("ten requests in the place of four") {
                REQUESTS
            } else {
                REQUESTS_IN_SHORT
            };
            for _ in 0..requests {
                let applied = unix_now()?;
                let request = fixture
                    .apply(json!({"target": {"podName": "web"}, "durationSeconds": 1}))
                    .await?;
                let request = fixture.ended(&request).await?;
                let complete = unix_now()?;
                holds(&request, condition::COMPLETE)?;
                let claimed = status(&request).profile.context("no merged profile")?;
                let profile = fixture.profile(fixture.store.key_of(&claimed.url)?).await?;
                let began = Duration::from_nanos(u64::try_from(profile.time_nanos)?);
                let ended = began + Duration::from_nanos(u64::try_from(profile.duration_nanos)?);
                to_first_sample.push(began.saturating_sub(applied));
                to_complete.push(complete.saturating_sub(ended));
            }
            say(&format!(
                "from apply to the first sample: {to_first_sample:.1?}"
            ));
            say(&format!(
                "from the end of the duration to Complete: {to_complete:.1?}"
            ));
            to_first_sample.sort_unstable();
            to_complete.sort_unstable();
            promised(
                "the median from apply to the first sample",
                PROMISE,
                to_first_sample[requests / 2],
            )?;
            promised(
                "the longest from the end of the duration to Complete",
                PROMISE,
                to_complete[requests - 1],
            )
        })
    }
}
