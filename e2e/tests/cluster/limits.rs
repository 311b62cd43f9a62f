//! A pod at its CPU limit: what its workers wait is labelled, and as much as the kernel says.

use anyhow::{Context as _, Result, ensure};
use e2e::requests::only_target;
use e2e::{ENABLED, pods, say, shared};
use phpprof_profile::waiting;
use serde_json::json;

#[test]
fn waits_below_a_cpu_limit_are_labelled() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::throttled("web")]).await?;
        let spec = json!({"target": {"podName": "web"}, "durationSeconds": 8});
        let request = fixture.completed(spec).await?;
        let quality = only_target(&request)?.quality.context("no quality")?;
        let claimed = request.status.clone().and_then(|status| status.profile);
        let claimed = claimed.context("no merged profile")?;
        let profile = fixture.profile(fixture.store.key_of(&claimed.url)?).await?;
        let wall = profile.value_index("wall").context("no wall time")?;
        let waits = profile.sample.iter().filter(|sample| {
            let mut labels = sample.label.iter();
            labels.any(|label| {
                let label = [label.key, label.str].map(|text| profile.string(text));
                label == [waiting::LABEL, waiting::CPU]
            })
        });
        let labelled = waits.map(|sample| sample.value[wall]).sum::<i64>() / 1_000_000;
        let counted = quality.cpu_wait_milliseconds;
        let throttled = profile.comments().next().context("no receipt")?;
        say(&format!(
            "{labelled} ms are labelled, {counted} ms are counted; {throttled}"
        ));
        // Four workers share a fifth of a CPU for eight seconds.
        ensure!(counted > 10_000, "they waited for {counted} ms only");
        ensure!(
            (labelled - counted).abs() * 10 < counted,
            "{labelled} ms are labelled, and {counted} ms are counted"
        );
        ensure!(
            throttled.contains("\"throttled\":{\"periods\":"),
            "{throttled}"
        );
        Ok(())
    })
}
