//! The flags of every verb: which cluster, as whom.
//!
//! Invariant: they are spelled as kubectl spells them; those of the operator are the plugin's own.

use std::path::PathBuf;

use clap::Args;

/// Which cluster, as whom.
#[derive(Args, Debug, Clone, Default)]
pub struct Global {
    /// Namespace. Default: the context's.
    #[arg(short, long, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Context of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Kubeconfig file. Default: KUBECONFIG, else ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Cluster of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub cluster: Option<String>,
    /// User of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub user: Option<String>,
    /// User to impersonate.
    #[arg(long = "as", global = true, value_name = "USER")]
    pub impersonate: Option<String>,
    /// Group to impersonate. May be repeated.
    #[arg(long = "as-group", global = true, value_name = "GROUP")]
    pub impersonate_groups: Vec<String>,
    /// How long to wait for an answer of the API server, for instance 5s. 0 means no limit.
    /// Default: 60s.
    #[arg(long, global = true, value_name = "DURATION", value_parser = crate::duration::parse, hide_short_help = true)]
    pub request_timeout: Option<u64>,
    /// Namespace of the operator.
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "PHPPROF_OPERATOR_NAMESPACE",
        hide_env_values = true,
        default_value = "phpprof-system",
        hide_short_help = true
    )]
    pub operator_namespace: String,
    /// Name of the operator's Deployment and Service: the chart's release name and "-operator".
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "PHPPROF_OPERATOR_NAME",
        hide_env_values = true,
        default_value = "phpprof-operator",
        hide_short_help = true
    )]
    pub operator_name: String,
}
