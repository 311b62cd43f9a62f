//! The command lines that hints and results suggest.
//!
//! It is pure. Every hint with a command for a cluster takes it from here.
//!
//! Invariant: a suggestion works unchanged in the user's shell: it names the namespace if the
//! context has another, and repeats the flags that chose cluster, user and operator.

use crate::global::Global;

/// How to write commands for a cluster and a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suggest {
    /// `None` if it is the context's own namespace.
    namespace: Option<String>,
    given: RepeatedFlags,
}

/// The flags of this command line that a suggestion repeats, quoted for a shell, each with a space
/// before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepeatedFlags {
    /// Those that kubectl has too.
    of_kubectl: String,
    own: String,
}

impl RepeatedFlags {
    /// `variable` reads the shell's environment, which sets the operator's names without flags.
    pub fn of(global: &Global, variable: impl Fn(&str) -> Option<String>) -> Self {
        let flag = |name: &str, value: &str| format!(" --{name} {}", quoted(value));
        let kubeconfig = global.kubeconfig.as_ref();
        let of_kubectl = [
            ("context", global.context.clone()),
            (
                "kubeconfig",
                kubeconfig.map(|path| path.display().to_string()),
            ),
            ("cluster", global.cluster.clone()),
            ("user", global.user.clone()),
            ("as", global.impersonate.clone()),
        ];
        let groups = global.impersonate_groups.iter();
        let timeout = global
            .request_timeout
            .map(|it| flag("request-timeout", &format!("{it}s")));
        let own = [
            (
                "operator-namespace",
                &global.operator_namespace,
                variable("PHPPROF_OPERATOR_NAMESPACE"),
                "phpprof-system",
            ),
            (
                "operator-name",
                &global.operator_name,
                variable("PHPPROF_OPERATOR_NAME"),
                "phpprof-operator",
            ),
        ];
        RepeatedFlags {
            of_kubectl: of_kubectl
                .into_iter()
                .filter_map(|(name, value)| Some(flag(name, &value?)))
                .chain(groups.map(|group| flag("as-group", group)))
                .chain(timeout)
                .collect(),
            own: own
                .into_iter()
                .filter(|(_, value, of_shell, default)| {
                    *value != of_shell.as_deref().unwrap_or(default)
                })
                .map(|(name, value, ..)| flag(name, value))
                .collect(),
        }
    }
}

/// The word as a shell takes it unchanged.
fn quoted(word: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_./:@%+=,".contains(it);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

impl Suggest {
    pub fn of(namespace: &str, of_context: &str, given: RepeatedFlags) -> Self {
        Suggest {
            namespace: (namespace != of_context).then(|| namespace.to_owned()),
            given,
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
            given: self.given.clone(),
        }
    }

    /// `kubectl phpprof describe web`, with the namespace if it is needed.
    pub fn phpprof(&self, words: &str) -> String {
        self.kubectl(&format!("phpprof {words}")) + &self.given.own
    }

    /// The same for kubectl itself.
    pub fn kubectl(&self, words: &str) -> String {
        match &self.namespace {
            None => self.of_cluster(words),
            Some(namespace) => self.of_cluster(&format!("{words} -n {}", quoted(namespace))),
        }
    }

    /// A command of kubectl that needs no namespace.
    pub fn of_cluster(&self, words: &str) -> String {
        format!("kubectl {words}{}", self.given.of_kubectl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_differing_from_the_context_is_named() {
        let of = |namespace| Suggest::of(namespace, "shop", RepeatedFlags::default());
        let (own, other) = (of("shop"), of("blog"));
        assert_eq!(own.phpprof("top web"), "kubectl phpprof top web");
        assert_eq!(own.in_namespace("shop", "shop"), own);
        assert_eq!(own.in_namespace("shop", "blog"), other);
        assert_eq!(other.phpprof("top web"), "kubectl phpprof top web -n blog");
        assert_eq!(other.kubectl("get pods"), "kubectl get pods -n blog");
        assert_eq!(other.of_cluster("get nodes"), "kubectl get nodes");
    }

    #[test]
    fn cluster_flags_are_repeated_with_shell_quoting() {
        let global = Global {
            context: Some("prod".to_owned()),
            kubeconfig: Some("my cluster's.yaml".into()),
            impersonate: Some("system:serviceaccount:shop:ci".to_owned()),
            impersonate_groups: vec!["a".to_owned(), "$b".to_owned()],
            request_timeout: Some(5),
            operator_namespace: "tools".to_owned(),
            operator_name: "prof-operator".to_owned(),
            ..Global::default()
        };
        let flags = r" --context prod --kubeconfig 'my cluster'\''s.yaml' --as system:serviceaccount:shop:ci --as-group a --as-group '$b' --request-timeout 5s";
        let in_shell =
            |name: &str| (name == "PHPPROF_OPERATOR_NAME").then(|| "prof-operator".to_owned());
        let suggest = Suggest::of("blog", "shop", RepeatedFlags::of(&global, in_shell))
            .in_namespace("blog", "other");
        assert_eq!(
            suggest.phpprof("cancel web"),
            format!("kubectl phpprof cancel web -n other{flags} --operator-namespace tools")
        );
        assert_eq!(
            suggest.of_cluster("get nodes"),
            format!("kubectl get nodes{flags}")
        );
    }
}
