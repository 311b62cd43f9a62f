//! The meaning of a namespace's label: it has opted in, or has stopped profiling.

use phpprof_crds::{NAMESPACE_DISABLED, NAMESPACE_ENABLED, NAMESPACE_LABEL, RequestReason};

use crate::RequestRefusal;
use crate::limits::AdminLimits;

/// Whether the label's value, if any, opts in.
pub fn is_enabled(label: Option<&str>) -> bool {
    label == Some(NAMESPACE_ENABLED)
}

/// Whether the label's value, if any, stops profiling: running requests stop, and new ones wait.
pub fn is_disabled(label: Option<&str>) -> bool {
    label == Some(NAMESPACE_DISABLED)
}

/// The message of a request that the label stops.
pub fn by_label() -> String {
    format!(
        "the label {NAMESPACE_LABEL}={NAMESPACE_DISABLED} of the namespace has stopped profiling"
    )
}

/// Whether the operator may accept requests of a namespace.
///
/// # Errors
/// The namespace has not opted in, but would have to.
pub fn check(
    namespace: &str,
    has_opted_in: bool,
    limits: &AdminLimits,
) -> Result<(), RequestRefusal> {
    if has_opted_in || !limits.namespace_opt_in {
        return Ok(());
    }
    let reason = RequestReason::NamespaceNotEnabled;
    let remedy = reason.remedy().unwrap_or_default();
    let remedy = remedy.replace("NAME", namespace);
    let message = format!("profiling is not enabled in this namespace. {remedy}");
    Err(RequestRefusal { reason, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_opt_in_where_the_administrator_wants_it() {
        let limits = AdminLimits::default();
        let refusal = check("shop", false, &limits).unwrap_err();
        assert_eq!(refusal.reason, RequestReason::NamespaceNotEnabled);
        assert!(refusal.message.contains("kubectl label namespace shop"));
        assert_eq!(check("shop", true, &limits), Ok(()));
        let open = AdminLimits {
            namespace_opt_in: false,
            ..limits
        };
        assert_eq!(check("shop", false, &open), Ok(()));
    }
}
