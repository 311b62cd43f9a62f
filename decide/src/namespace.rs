//! What a namespace's label says: whether it has opted in, or has stopped profiling.

use phpprof_crds::{NAMESPACE_DISABLED, NAMESPACE_ENABLED, NAMESPACE_LABEL, Reason};

use crate::Refusal;
use crate::limits::Limits;

/// By the label's value, where there is one.
pub fn is_enabled(label: Option<&str>) -> bool {
    label == Some(NAMESPACE_ENABLED)
}

/// By the label's value, where there is one: what runs is stopped, what is asked for waits.
pub fn is_disabled(label: Option<&str>) -> bool {
    label == Some(NAMESPACE_DISABLED)
}

/// In words, where the label stops a request.
pub fn by_label() -> String {
    format!(
        "the label {NAMESPACE_LABEL}={NAMESPACE_DISABLED} of the namespace has stopped profiling"
    )
}

/// Whether requests of a namespace may be accepted, where it has opted in or not.
///
/// # Errors
/// It would have to opt in.
pub fn check(namespace: &str, has_opted_in: bool, limits: &Limits) -> Result<(), Refusal> {
    if has_opted_in || !limits.namespace_opt_in {
        return Ok(());
    }
    let reason = Reason::NamespaceNotEnabled;
    let remedy = reason.remedy().unwrap_or_default();
    let remedy = remedy.replace("NAME", namespace);
    let message = format!("profiling is not enabled in this namespace. {remedy}");
    Err(Refusal { reason, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_asked_to_opt_in_where_the_administrator_wants_that() {
        let limits = Limits::default();
        let refusal = check("shop", false, &limits).unwrap_err();
        assert_eq!(refusal.reason, Reason::NamespaceNotEnabled);
        assert!(refusal.message.contains("kubectl label namespace shop"));
        assert_eq!(check("shop", true, &limits), Ok(()));
        let open = Limits {
            namespace_opt_in: false,
            ..limits
        };
        assert_eq!(check("shop", false, &open), Ok(()));
    }
}
