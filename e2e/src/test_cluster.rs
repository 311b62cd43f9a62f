//! Where a test cluster of e2e/cluster is on this machine: its names, paths and addresses.
//!
//! Invariant: they are those of `e2e/cluster/names.sh`, which a test compares.

use std::path::PathBuf;

/// The variable that names the cluster, as in `names.sh`.
const VARIABLE: &str = "PHPPROF_CLUSTER";

/// One of the clusters of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestCluster {
    /// The part of each of its names and paths.
    name: &'static str,
    /// The second number of its pods' and its services' addresses.
    pods: u8,
    services: u8,
}

/// The first one is that of most tests.
const CLUSTERS: [TestCluster; 2] = [
    TestCluster {
        name: "phpprof-e2e",
        pods: 204,
        services: 205,
    },
    TestCluster {
        name: "phpprof-e2e-2",
        pods: 208,
        services: 209,
    },
];

/// The cluster that the tests of this process use. On another cluster than those of this machine it
/// is the first one, whose files are not there.
#[must_use]
pub fn here() -> TestCluster {
    let name = std::env::var(VARIABLE).unwrap_or_default();
    let named = CLUSTERS.into_iter().find(|cluster| cluster.name == name);
    named.unwrap_or(CLUSTERS[0])
}

/// The clusters of this machine that are up.
pub fn all() -> impl Iterator<Item = TestCluster> {
    CLUSTERS
        .into_iter()
        .filter(|cluster| cluster.run().exists())
}

impl TestCluster {
    /// What distinguishes its locks from those of other clusters.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.name
    }

    /// The folder of its sockets, logs and credentials: RUN.
    #[must_use]
    pub fn run(self) -> PathBuf {
        PathBuf::from("/run").join(self.name)
    }

    /// The log of the operator's calls.
    #[must_use]
    pub fn audit_log(self) -> PathBuf {
        self.run().join("log/audit.jsonl")
    }

    /// The argument with which `nsenter` enters its network.
    #[must_use]
    pub fn network(self) -> String {
        format!("--net=/run/netns/{}", self.name)
    }

    /// The beginnings of its pods' addresses, of both families.
    #[must_use]
    pub fn pods(self) -> [String; 2] {
        [
            format!("10.{}.", self.pods),
            format!("fd00:{}::", self.pods),
        ]
    }

    /// The addresses of its API server's Service, of both families.
    #[must_use]
    pub fn api_server(self) -> [String; 2] {
        let services = self.services;
        [format!("10.{services}.0.1"), format!("fd00:{services}::1")]
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn names_are_those_of_the_scripts() -> std::io::Result<()> {
        for cluster in CLUSTERS {
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/cluster/names.sh");
            let line = format!(
                ". {script}; echo $RUN ${{POD_CIDRS[4]}} ${{POD_CIDRS[6]}} ${{API_SERVICE_IPS[4]}} ${{API_SERVICE_IPS[6]}}"
            );
            let mut bash = Command::new("bash");
            let said = bash
                .args(["-c", &line])
                .env(VARIABLE, cluster.name)
                .output()?;
            let ([pods, pods_6], [api, api_6]) = (cluster.pods(), cluster.api_server());
            let expected = format!(
                "{} {pods}0.0/16 {pods_6}/64 {api} {api_6}",
                cluster.run().display()
            );
            assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), expected);
        }
        Ok(())
    }

    #[test]
    fn makefile_names_the_second_cluster() {
        let makefile = include_str!("../../Makefile");
        let line = format!("SECOND := {}", CLUSTERS[1].name);
        assert!(makefile.lines().any(|it| it == line), "{line}");
    }
}
