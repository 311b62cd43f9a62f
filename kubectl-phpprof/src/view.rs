//! Which part of a profile is shown, as flags say it, and what is wrong with a part that cannot be.
//!
//! Invariant: a sample type that the profile does not have is refused with those that it has.

use phpprof_profile::{View, ViewError};

use crate::cli::ViewArguments;
use crate::failure::{Exit, Failure};

pub fn view(arguments: &ViewArguments) -> View {
    View {
        sample_type: arguments.sample_type.clone(),
        labels: arguments.labels.clone(),
    }
}

pub fn wrong_view(error: ViewError) -> Failure {
    let (exit, hint) = match error {
        ViewError::NoSuchType { .. } => (Exit::Usage, "choose one of them with --sample-type"),
        ViewError::PageTooLarge(_) => (
            Exit::Failed,
            "draw a part of the profile with --label, or write a picture (.svg)",
        ),
    };
    Failure::new(exit, error.to_string(), hint)
}
