//! The number of the contract in a run: operators of the number before this sampler's, of its own,
//! and of the next one.

use anyhow::{Context as _, Result, ensure};
use phpprof::contract::NUMBER;
use serde_json::Value;

use super::relay::{Relay, stopped};
use super::scene::{Container, Resident, profile};

#[test]
fn neighbours_speak_the_smaller_number() -> Result<()> {
    let container = Container::start(13)?;
    let id = container.id.clone();
    let relay = Relay::start(move |relay| {
        let run = |(name, said): (&str, u32)| {
            let mut run = relay.run(name, &id, 1);
            run["environment"]["PHPPROF_CONTRACT"] = said.to_string().into();
            run
        };
        let all = [
            ("before", NUMBER - 1),
            ("own", NUMBER),
            ("next", NUMBER + 1),
            ("far", NUMBER + 2),
        ];
        let are_done = all
            .iter()
            .all(|(name, _)| relay.has(&format!("{name}.pb.gz.receipt")));
        if are_done {
            stopped()
        } else {
            relay.answer(60, &all.map(run))
        }
    })?;
    let mut resident = Resident::of(&container, &relay)?;
    resident.check_ends(0, r#"{"reason":"LeaseEnded","detail":"HTTP 410"}"#)?;
    for (name, spoken) in [("before", NUMBER - 1), ("own", NUMBER), ("next", NUMBER)] {
        let profile = profile(&relay, name)?;
        let receipt = profile.comments().next().context("no receipt")?;
        let receipt: Value = serde_json::from_str(receipt)?;
        ensure!(receipt["contract"] == spoken, "{name}: {receipt}");
    }
    let refused = relay.receipt("far")?;
    let numbers = format!("contract {}, sampler's {NUMBER}:", NUMBER + 2);
    ensure!(
        refused.contains(r#""reason":"Usage""#) && refused.contains(&numbers),
        "{refused}"
    );
    Ok(())
}
