//! The sampler's mode: as the target's own user, or as root with SYS_PTRACE.

use k8s_openapi::api::core::v1::{Capabilities, SeccompProfile, SecurityContext};
use phpprof_crds::ProfileTarget;

use crate::pod::ContainerView;

/// The two modes in which a sampler may read the target's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// The target's uid and gid, and no capability. Passes Pod Security `restricted`.
    SameUser {
        /// Never 0.
        uid: i64,
        /// The gid from the pod or the request, or else the same number as the uid.
        gid: i64,
    },
    /// Root with SYS_PTRACE and nothing else.
    Ptrace {
        /// Whether PHP is known to run as root. If not, its user is unknown.
        user_known: bool,
    },
}

impl ReadMode {
    /// What the sampler's container may do.
    pub fn security_context(self) -> SecurityContext {
        let (uid, gid, added) = match self {
            ReadMode::SameUser { uid, gid } => (uid, gid, None),
            ReadMode::Ptrace { .. } => (0, 0, Some(vec!["SYS_PTRACE".to_owned()])),
        };
        SecurityContext {
            run_as_user: Some(uid),
            run_as_group: Some(gid),
            run_as_non_root: Some(uid != 0),
            privileged: Some(false),
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities {
                add: added,
                drop: Some(vec!["ALL".to_owned()]),
            }),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..SecurityContext::default()
        }
    }
}

/// SameUser if the target's user is known and not root; otherwise Ptrace.
///
/// If the pod names a user without a group, the runtime takes the group from the image's
/// /etc/passwd. This code cannot read that file; nearly all images use the same number for both.
pub fn mode(container: Option<&ContainerView>, target: &ProfileTarget) -> ReadMode {
    let said = container.and_then(|container| container.uid);
    match said.or(target.run_as_user) {
        None => ReadMode::Ptrace { user_known: false },
        Some(0) => ReadMode::Ptrace { user_known: true },
        Some(uid) => {
            let gid = container
                .and_then(|container| container.gid)
                .or(target.run_as_group);
            ReadMode::SameUser {
                uid,
                gid: gid.unwrap_or(uid),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of pod and request: the user and the group.
    #[track_caller]
    fn check(pod: [Option<i64>; 2], asked: [Option<i64>; 2], expected: ReadMode) {
        let container = ContainerView {
            uid: pod[0],
            gid: pod[1],
            ..ContainerView::default()
        };
        let target = ProfileTarget {
            run_as_user: asked[0],
            run_as_group: asked[1],
            ..ProfileTarget::default()
        };
        assert_eq!(mode(Some(&container), &target), expected);
    }

    #[test]
    fn a_known_ordinary_user_is_taken_over() {
        check(
            [Some(1000), Some(1001)],
            [None, None],
            ReadMode::SameUser {
                uid: 1000,
                gid: 1001,
            },
        );
        check(
            [Some(1000), None],
            [None, None],
            ReadMode::SameUser {
                uid: 1000,
                gid: 1000,
            },
        );
    }

    #[test]
    fn mode_prefers_the_pods_user() {
        check(
            [Some(1000), Some(1001)],
            [Some(5), Some(6)],
            ReadMode::SameUser {
                uid: 1000,
                gid: 1001,
            },
        );
        check(
            [Some(0), None],
            [Some(5), None],
            ReadMode::Ptrace { user_known: true },
        );
        check(
            [None, None],
            [Some(5), Some(6)],
            ReadMode::SameUser { uid: 5, gid: 6 },
        );
    }

    #[test]
    fn root_and_unknown_users_need_ptrace() {
        check(
            [Some(0), None],
            [None, None],
            ReadMode::Ptrace { user_known: true },
        );
        check(
            [None, None],
            [None, None],
            ReadMode::Ptrace { user_known: false },
        );
    }
}
