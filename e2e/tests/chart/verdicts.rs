//! What the chart renders for verdicts, which are off by default.

use anyhow::{Result, ensure};

use crate::template;

#[test]
fn verdicts_bring_their_rights_only_when_on() -> Result<()> {
    let policy = [
        "networkPolicy.enabled=true",
        "networkPolicy.apiServerCIDRs[0]=10.0.0.1/32",
        "networkPolicy.rollouts[0].podSelector.matchLabels.app=rollouts",
    ];
    let lines = [
        "--verdict-tokens=/etc/phpprof-verdict",
        "secretName: \"of-verdicts\"",
        "verbs: [create, get, list, watch, delete]",
        "app: rollouts",
    ];
    let on = [&policy[..], &["verdict.tokensSecret=of-verdicts"]].concat();
    for (values, is_on) in [(&policy[..], false), (&on[..], true)] {
        let (accepted, text) = template(values)?;
        ensure!(accepted, "{text}");
        for line in lines {
            ensure!(text.contains(line) == is_on, "{line}: {is_on}, in {text}");
        }
    }
    Ok(())
}
