//! prepare: prepares the cluster of the kubeconfig for a run of its tests (`make e2e`).

fn main() -> anyhow::Result<()> {
    e2e::prepare()
}
