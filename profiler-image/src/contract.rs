//! The number of the contract with the operator, and how two numbers work together
//! (`contract/versions.json`).
//!
//! Invariant: both sides speak the smaller of their numbers, so neither has to understand a number
//! that it does not know.

use crate::failure::{Reason, SamplerFailure};

/// The number of this sampler.
pub const NUMBER: u32 = 1;
/// The environment variable with the operator's number.
pub const VARIABLE: &str = "PHPPROF_CONTRACT";
/// The header with a resident sampler's number, in its polls.
pub const HEADER: &str = "phpprof-contract";

/// The number that is spoken with an operator that has said this one.
///
/// # Errors
/// They do not work together; the [`SamplerFailure`] says what to do.
pub fn spoken(said: Option<&str>) -> Result<u32, SamplerFailure> {
    // Operators from before the first number do not set it.
    let said = said.unwrap_or("0");
    let number = said.parse().ok().and_then(|said| smaller(NUMBER, said));
    number.ok_or_else(|| {
        let what_to_do = "use the image of the operator's release";
        let detail = format!("operator's contract {said:.10}, sampler's {NUMBER}: {what_to_do}");
        let message = format!(
            "the operator has contract {said:.10}, and this sampler has {NUMBER}, which is too far apart; {what_to_do}"
        );
        SamplerFailure::new(Reason::Usage, detail, message)
    })
}

/// Neighbours work together: the newer side knows the older one's number.
fn smaller(own: u32, said: u32) -> Option<u32> {
    (own.abs_diff(said) <= 1).then(|| own.min(said))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deliver::receipt;

    #[test]
    fn neighbours_speak_the_smaller_contract() {
        let golden: serde_json::Value =
            serde_json::from_str(include_str!("../../contract/versions.json")).unwrap();
        assert_eq!(golden["number"], NUMBER);
        for pair in golden["pairs"].as_array().unwrap() {
            let [own, said, speak] =
                ["sampler", "operator", "speak"].map(|name| pair[name].as_u64());
            let [own, said] = [own, said].map(|it| u32::try_from(it.unwrap()).unwrap());
            assert_eq!(smaller(own, said).map(u64::from), speak, "{pair}");
        }
    }

    #[test]
    fn missing_contract_is_0_and_others_refused() {
        assert_eq!(spoken(None).unwrap(), 0);
        assert_eq!(spoken(Some("2")).unwrap(), NUMBER);
        for odd in ["", "one", "-1", "1.0", "3"] {
            assert!(spoken(Some(odd)).is_err(), "{odd:?}");
        }
    }

    #[test]
    fn contract_refusal_has_numbers_and_a_hint() {
        let failure = spoken(Some("4294967295")).unwrap_err();
        assert_eq!(failure.reason, Reason::Usage);
        let whole =
            "operator's contract 4294967295, sampler's 1: use the image of the operator's release";
        assert_eq!(failure.detail, whole);
        let line = receipt::failed(failure.reason, &failure.detail);
        assert!(line.contains(whole), "{line}");
        assert!(
            failure
                .message
                .ends_with("use the image of the operator's release"),
            "{failure}"
        );
    }
}
