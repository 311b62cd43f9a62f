//! `explain`: what a reason means, and what to do about it.
//!
//! Meanings and remedies are the API's own.
//!
//! Invariant: every reason of the API is explained.

use phpprof_crds::{Reason, TargetReason, documented};
use serde::de::DeserializeOwned;

use crate::failure::{Exit, Failure};

/// Name and meaning of each reason, those of requests first.
pub fn reasons() -> Vec<(String, String)> {
    let of_requests = documented::<Reason>().into_iter();
    let mut all: Vec<_> = of_requests
        .map(|(reason, meaning)| (reason.to_string(), meaning))
        .collect();
    for (reason, meaning) in documented::<TargetReason>() {
        let name = reason.to_string();
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = format!("{known} Of a pod: {meaning}"),
            None => all.push((name, meaning)),
        }
    }
    all
}

/// The reason with this name.
pub fn named<T: DeserializeOwned>(name: &str) -> Option<T> {
    serde_json::from_value(name.into()).ok()
}

/// Of a request's reason, else of a pod's.
fn remedy(name: &str) -> Option<&'static str> {
    named(name)
        .and_then(Reason::remedy)
        .or_else(|| named(name).map(TargetReason::remedy))
}

pub fn text(asked: Option<&str>) -> Result<String, Failure> {
    let all = reasons();
    let Some(asked) = asked else {
        return Ok(all
            .iter()
            .map(|(name, meaning)| format!("{name}\n    {meaning}\n"))
            .collect());
    };
    let known = all
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(asked));
    let Some((name, meaning)) = known else {
        let near: Vec<_> = all
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| {
                name.to_ascii_lowercase()
                    .contains(&asked.to_ascii_lowercase())
            })
            .collect();
        let hint = if near.is_empty() {
            "list them all: kubectl phpprof explain".to_owned()
        } else {
            format!("did you mean {}?", near.join(", "))
        };
        return Err(Failure::new(
            Exit::NotFound,
            format!("there is no reason {asked:?}"),
            hint,
        ));
    };
    let advice =
        remedy(name).map_or_else(String::new, |remedy| format!("\nWhat to do: {remedy}\n"));
    Ok(format!("{name}\n\n{meaning}\n{advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_meaning() {
        let all = reasons();
        assert!(all.len() > 50);
        assert!(all.iter().all(|(_, meaning)| !meaning.is_empty()));
    }

    #[test]
    fn a_reason_is_explained_and_an_unknown_one_gets_a_hint() {
        insta::assert_snapshot!("explain", text(Some("usERunknown")).unwrap());
        let failure = text(Some("upload")).unwrap_err();
        assert_eq!(
            failure.hint,
            "did you mean UploadDeadlineExceeded, UploadRefused?"
        );
        assert_eq!(text(Some("Nothing")).unwrap_err().exit, Exit::NotFound);
    }
}
