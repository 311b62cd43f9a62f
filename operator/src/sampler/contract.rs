//! The number of the contract with samplers, and how two numbers work together
//! (`contract/versions.json`).
//!
//! Invariant: both sides speak the smaller of their numbers, so neither has to understand a number
//! that it does not know.

/// The number of this operator.
pub const NUMBER: u32 = 1;
/// The environment variable with the number, for the sampler.
pub const VARIABLE: &str = "PHPPROF_CONTRACT";
/// The header in which a resident sampler sends its number when it asks for runs.
pub const HEADER: &str = "phpprof-contract";

/// The number that is spoken with a sampler of this number. Samplers from before the first number
/// send none, which counts as 0.
///
/// # Errors
/// They do not work together. What to do about it is the remedy of the reason `Usage`.
pub fn spoken(said: u32) -> Result<u32, String> {
    smaller(NUMBER, said).ok_or_else(|| {
        format!(
            "the sampler has contract {said}, and this operator has {NUMBER}; numbers that differ by more than one do not work together"
        )
    })
}

/// Neighbours work together: the newer side knows the older one's number.
fn smaller(own: u32, said: u32) -> Option<u32> {
    (own.abs_diff(said) <= 1).then(|| own.min(said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_speak_the_smaller_number_and_refuse_others() {
        let golden: serde_json::Value =
            serde_json::from_str(include_str!("../../../contract/versions.json")).unwrap();
        assert_eq!(golden["number"], NUMBER);
        for pair in golden["pairs"].as_array().unwrap() {
            let [own, said, speak] =
                ["operator", "sampler", "speak"].map(|name| pair[name].as_u64());
            let [own, said] = [own, said].map(|it| u32::try_from(it.unwrap()).unwrap());
            assert_eq!(smaller(own, said).map(u64::from), speak, "{pair}");
        }
    }

    #[test]
    fn a_refusal_says_both_numbers() {
        assert_eq!(
            spoken(3).unwrap_err(),
            "the sampler has contract 3, and this operator has 1; numbers that differ by more than one do not work together"
        );
    }
}
