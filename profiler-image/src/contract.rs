//! The version of the contract with the operator, and the other versions that this sampler works with (`contract/versions.json`).
//!
//! Invariant: the sampler never guesses what another version means.

use crate::failure::{Failure, Reason};

/// This sampler's version.
pub const NUMBER: u32 = 1;
/// The environment variable with the operator's version.
pub const VARIABLE: &str = "PHPPROF_CONTRACT";
/// The header with a resident sampler's version, in its polls.
pub const HEADER: &str = "phpprof-contract";

/// Whether this sampler works with an operator of this version.
///
/// # Errors
/// A [`Failure`] that says what to do.
pub fn check(said: Option<&str>) -> Result<(), Failure> {
    // Operators from before the first version do not set it.
    let said = said.unwrap_or("0");
    let before = NUMBER - 1;
    if said.parse() == Ok(NUMBER) || said.parse() == Ok(before) {
        return Ok(());
    }
    let detail = format!("operator's contract {said:.10}, sampler's {before} to {NUMBER}");
    let message = format!(
        "the operator speaks contract {said:.10}, and this sampler {before} to {NUMBER}; use the sampler's image of the operator's release"
    );
    Err(Failure::new(Reason::Usage, detail, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_of_this_contract_and_of_the_one_before_is_understood_and_no_other() {
        let golden: serde_json::Value =
            serde_json::from_str(include_str!("../../contract/versions.json")).unwrap();
        assert_eq!(golden["number"], NUMBER);
        for peer in golden["peers"].as_array().unwrap() {
            let said = peer["says"].as_u64().map(|number| number.to_string());
            let checked = check(said.as_deref());
            assert_eq!(checked.is_ok(), peer["works"] == true, "{peer}");
        }
    }

    #[test]
    fn a_refusal_says_both_numbers_and_what_to_do_and_fits_a_receipt() {
        let failure = check(Some("4294967295")).unwrap_err();
        assert_eq!(failure.reason, Reason::Usage);
        assert_eq!(
            failure.detail,
            "operator's contract 4294967295, sampler's 0 to 1"
        );
        assert!(
            failure
                .message
                .ends_with("use the sampler's image of the operator's release")
        );
        for odd in ["", "one", "-1", "1.0"] {
            assert!(check(Some(odd)).is_err(), "{odd:?}");
        }
    }
}
