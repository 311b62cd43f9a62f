#!/usr/bin/env bash
# kube 5.0.0: an environment and a kubeconfig with which kubectl connects can leave a Rust client without its proxy, or without its user.
# kubectl always goes through an explicit proxy-url, matches NO_PROXY against the API server, and trims the token of a tokenFile.
#
# Seen: NO_PROXY=* drops an explicit proxy-url; NO_PROXY with the API server's name does not keep HTTPS_PROXY away from it; and a token file
# that ends with a line break, as `echo TOKEN >FILE` writes it, is "invalid bearer token: failed to parse header value".
# Installs kube in a temporary folder, runs it without phpprof, and fails if it prints anything else.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/src"
cat >"$folder/Cargo.toml" <<'TOML'
[package]
name = "seen"
version = "0.0.0"
edition = "2024"
[dependencies]
k8s-openapi = { version = "=0.29.0", features = ["v1_34"] }
kube = { version = "=5.0.0", default-features = false, features = ["client", "http-proxy"] }
tokio = { version = "1", features = ["macros", "rt"] }
TOML
cat >"$folder/src/main.rs" <<'RUST'
use kube::config::{Config, KubeConfigOptions, Kubeconfig};

async fn config(cluster: &str, user: &str) -> Config {
    let text = format!(
        "current-context: t\ncontexts: [{{name: t, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'http://api.example.com'{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
    );
    let kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments[1].as_str() {
        "explicit" => println!("{:?}", config(", proxy-url: 'http://proxy:1'", "").await.proxy_url),
        "variable" => println!("{:?}", config("", "").await.proxy_url),
        _ => {
            let config = config("", &format!("tokenFile: '{}'", arguments[2])).await;
            let client = kube::Client::try_from(config).unwrap();
            println!("{}", client.apiserver_version().await.unwrap_err());
        }
    }
}
RUST
cd "$folder"
CARGO_TARGET_DIR=$folder/target cargo build --quiet
for name in HTTPS_PROXY https_proxy NO_PROXY no_proxy; do unset "$name"; done
explicit=$(NO_PROXY='*' target/debug/seen explicit)
variable=$(HTTPS_PROXY=http://proxy:1 NO_PROXY=api.example.com target/debug/seen variable)
echo TOKEN >token
file=$(target/debug/seen file token)
printf '%s\n' "$explicit" "$variable" "$file"
[ "$explicit" = None ]
[ "$variable" = 'Some(http://proxy:1/)' ]
[[ $file == *"invalid bearer token"* ]]
