//! The arguments of the operator's container, where its Deployment can be read.

use super::ObservedRelease;

/// What follows this prefix in each argument that has it.
pub(super) fn arguments<'o>(
    observed: &'o ObservedRelease,
    prefix: &'static str,
) -> impl Iterator<Item = &'o str> {
    let facts = observed.operator.as_ref().ok().into_iter();
    let arguments = facts.flat_map(|facts| &facts.arguments);
    arguments.filter_map(move |argument| argument.strip_prefix(prefix))
}

/// The first of them.
pub fn argument<'o>(observed: &'o ObservedRelease, prefix: &'static str) -> Option<&'o str> {
    arguments(observed, prefix).next()
}

/// Whether the operator has exactly this argument.
pub(super) fn has_argument(observed: &ObservedRelease, wanted: &str) -> bool {
    let facts = observed.operator.as_ref();
    facts.is_ok_and(|facts| facts.arguments.iter().any(|argument| argument == wanted))
}
