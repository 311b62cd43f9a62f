//! The number of the contract with samplers, and the other numbers that this operator accepts (`contract/versions.json`).
//!
//! Invariant: the operator never guesses what another number means.

/// The number that this operator speaks.
pub const NUMBER: u32 = 1;
/// The environment variable with the number, for the sampler.
pub const VARIABLE: &str = "PHPPROF_CONTRACT";
/// The header in which a resident sampler sends its number when it asks for runs.
pub const HEADER: &str = "phpprof-contract";

/// Whether the operator understands a sampler with this number. Samplers from before the first number send none, which counts as 0.
pub fn check(said: u32) -> Result<(), String> {
    let before = NUMBER - 1;
    match said == NUMBER || said == before {
        true => Ok(()),
        false => Err(format!(
            "the sampler speaks contract {said}, and this operator {before} to {NUMBER}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sampler_of_this_contract_and_of_the_one_before_is_understood_and_no_other() {
        let golden: serde_json::Value =
            serde_json::from_str(include_str!("../../../contract/versions.json")).unwrap();
        assert_eq!(golden["number"], NUMBER);
        for peer in golden["peers"].as_array().unwrap() {
            let said = peer["says"].as_u64().unwrap_or_default();
            let checked = check(u32::try_from(said).unwrap());
            assert_eq!(checked.is_ok(), peer["works"] == true, "{peer}");
        }
        assert_eq!(
            check(2).unwrap_err(),
            "the sampler speaks contract 2, and this operator 0 to 1"
        );
    }
}
