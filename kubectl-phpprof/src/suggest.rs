//! The command lines that hints and results suggest.
//!
//! It is pure. Every hint with a command for a namespace takes it from here.
//!
//! Invariant: a suggestion works unchanged in the user's shell: it names the namespace if the context has another.

/// How to write commands for a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suggest {
    /// `None` if it is the context's own namespace.
    namespace: Option<String>,
}

impl Suggest {
    pub fn of(namespace: &str, of_context: &str) -> Self {
        Suggest {
            namespace: (namespace != of_context).then(|| namespace.to_owned()),
        }
    }

    /// The same for another namespace than `own`.
    pub fn in_namespace(&self, own: &str, other: &str) -> Self {
        let of_context = match (own == other, &self.namespace) {
            (true, known) => known.is_none(),
            (false, _) => false,
        };
        Suggest {
            namespace: (!of_context).then(|| other.to_owned()),
        }
    }

    /// `kubectl phpprof describe web`, with the namespace if it is needed.
    pub fn phpprof(&self, words: &str) -> String {
        self.kubectl(&format!("phpprof {words}"))
    }

    /// The same for kubectl itself.
    pub fn kubectl(&self, words: &str) -> String {
        match &self.namespace {
            None => format!("kubectl {words}"),
            Some(namespace) => format!("kubectl {words} -n {namespace}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_named_where_the_context_has_another() {
        let (own, other) = (Suggest::of("shop", "shop"), Suggest::of("blog", "shop"));
        assert_eq!(own.phpprof("top web"), "kubectl phpprof top web");
        assert_eq!(own.in_namespace("shop", "shop"), own);
        assert_eq!(own.in_namespace("shop", "blog"), other);
        assert_eq!(other.phpprof("top web"), "kubectl phpprof top web -n blog");
        assert_eq!(other.kubectl("get pods"), "kubectl get pods -n blog");
    }
}
