//! What becomes of a kubeconfig's entries.

use super::super::proxy::ProxyKind;
use super::*;

/// The plan for entries in YAML, and the variables HTTPS_PROXY and NO_PROXY.
fn planned(
    cluster: &str,
    user: &str,
    variables: &[(&str, &str)],
) -> Result<ConnectPlan, PlanError> {
    let cluster: Cluster = serde_yaml::from_str(cluster).unwrap();
    let user: AuthInfo = serde_yaml::from_str(user).unwrap();
    plan(&cluster, &user, &|name| {
        let found = variables.iter().find(|it| it.0 == name);
        found.map(|it| it.1.to_owned())
    })
}

fn sent(user: &str) -> AuthInfo {
    let entry: AuthInfo = serde_yaml::from_str(user).unwrap();
    plain(
        &entry,
        &planned("{server: https://api}", user, &[]).unwrap(),
    )
}

#[test]
fn a_proxy_url_beats_environment_and_no_proxy() {
    let cluster = "{server: https://api.example.com, proxy-url: socks5://near:1}";
    let all = [("HTTPS_PROXY", "http://far:2"), ("NO_PROXY", "*")];
    let proxy = planned(cluster, "{}", &all).unwrap().proxy.unwrap();
    assert_eq!(
        (proxy.kind, proxy.address.to_string()),
        (ProxyKind::Socks, "http://near:1/".into())
    );
    let local = "{server: 'https://127.0.0.1:1', proxy-url: http://near:1}";
    assert!(planned(local, "{}", &all).unwrap().proxy.is_some());
    let empty = "{server: https://api.example.com, proxy-url: ''}";
    assert!(planned(empty, "{}", &all).unwrap().proxy.is_none());
    let far = planned(empty, "{}", &all[..1]).unwrap().proxy.unwrap();
    assert_eq!(far.address, "http://far:2/");
}

#[test]
fn trust_is_the_systems_a_files_or_none() {
    let trust = |cluster: &str| planned(cluster, "{}", &[]).map(|it| it.trust);
    assert_eq!(trust("{server: https://api}").unwrap(), Trust::System);
    assert_eq!(
        trust("{server: https://api, insecure-skip-tls-verify: true}").unwrap(),
        Trust::Anything
    );
    assert_eq!(
        trust("{server: https://api, certificate-authority: /ca, certificate-authority-data: ''}")
            .unwrap(),
        Trust::Authorities(PemSource::File("/ca".into()))
    );
    assert_eq!(
        trust(
            "{server: https://api, certificate-authority: /ca, certificate-authority-data: YQ==}"
        )
        .unwrap(),
        Trust::Authorities(PemSource::Data("certificate-authority-data", "YQ==".into()))
    );
    assert!(matches!(
        trust("{server: https://api, certificate-authority: /ca, insecure-skip-tls-verify: true}"),
        Err(PlanError::InsecureWithAuthority)
    ));
}

#[test]
fn tls_settings_give_a_server_without_scheme_https() {
    let server = |cluster: &str| planned(cluster, "{}", &[]).map(|it| it.server.to_string());
    assert_eq!(server("{server: 'api:6443'}").unwrap(), "http://api:6443/");
    assert_eq!(
        server("{server: 'api:6443', certificate-authority: /ca}").unwrap(),
        "https://api:6443/"
    );
    assert_eq!(
        server("{server: https://api/k8s/c1}").unwrap(),
        "https://api/k8s/c1"
    );
    for wrong in [
        "{}",
        "{server: ''}",
        "{server: 'ftp://api'}",
        "{server: 'https://'}",
    ] {
        assert!(server(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn token_beats_plugin_and_token_file_beats_token() {
    let login = |user: &str| planned("{server: https://api}", user, &[]).map(|it| it.login);
    let exec =
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Never}";
    assert!(matches!(login(&format!("{{{exec}}}")), Ok(Login::Exec(_))));
    assert!(matches!(
        login(&format!("{{token: t, {exec}}}")),
        Ok(Login::Plain)
    ));
    assert!(matches!(
        login(&format!("{{token: '', {exec}}}")),
        Ok(Login::Exec(_))
    ));
    let certificate = "client-certificate: /c, client-key: /k";
    assert!(matches!(
        login(&format!("{{{certificate}, {exec}}}")),
        Ok(Login::Plain)
    ));
    let provider = "auth-provider: {name: oidc, config: {id-token: i}}";
    assert!(matches!(
        login(&format!("{{{provider}}}")),
        Ok(Login::Oidc(_))
    ));
    assert!(matches!(
        login("{auth-provider: {name: gcp}}"),
        Err(PlanError::Provider(_))
    ));
    assert!(matches!(
        login("{token: t, username: u, password: p}"),
        Err(PlanError::TwoLogins)
    ));
    let Ok(Login::File { path, otherwise }) = login("{token: t, tokenFile: /t}") else {
        panic!("no file");
    };
    assert!(path == "/t" && otherwise.is_some());
    let both = sent("{token: t, tokenFile: /t}");
    assert!(both.token.is_none() && both.token_file.is_none());
    assert!(sent("{token: t, tokenFile: ''}").token.is_some());
    assert!(sent(&format!("{{as: bob, {exec}}}")).impersonate.is_some());
}

#[test]
fn nothing_of_a_user_is_sent_without_tls() {
    let user = "{token: t, client-certificate: /c, client-key: /k, as: bob}";
    let plan = planned("{server: 'http://api:8080'}", user, &[]);
    // With a certificate a server without a scheme would be https; this one says http.
    let plan = plan.unwrap();
    assert_eq!(plan.identity, None);
    let sent = plain(&serde_yaml::from_str(user).unwrap(), &plan);
    assert!(sent.token.is_none() && sent.impersonate.as_deref() == Some("bob"));
}

#[test]
fn a_plan_shows_no_credential_by_debug() {
    let cluster = "{server: https://api, proxy-url: 'http://ann:hidden@near:1'}";
    let version = "apiVersion: client.authentication.k8s.io/v1beta1";
    for user in [
        "{token: hidden, tokenFile: /t}".to_owned(),
        "{client-certificate: /c, client-key-data: hidden}".to_owned(),
        "{auth-provider: {name: oidc, config: {id-token: hidden, client-secret: hidden}}}"
            .to_owned(),
        format!("{{exec: {{command: x, {version}, env: [{{name: n, value: hidden}}]}}}}"),
    ] {
        let shown = format!("{:?}", planned(cluster, &user, &[]).unwrap());
        assert!(
            shown.contains("near:1") && !shown.contains("hidden"),
            "{shown}"
        );
        let entries = crate::connect::Entries {
            context: None,
            cluster: serde_yaml::from_str(cluster).unwrap(),
            user: serde_yaml::from_str(&user).unwrap(),
            ..Default::default()
        };
        let shown = format!("{entries:?}");
        assert!(
            shown.contains("https://api") && !shown.contains("hidden"),
            "{shown}"
        );
    }
}

#[test]
fn a_certificate_needs_a_key() {
    let identity = |user: &str| planned("{server: https://api}", user, &[]).map(|it| it.identity);
    assert!(matches!(
        identity("{client-certificate: /c}"),
        Err(PlanError::NoKey)
    ));
    assert_eq!(
        identity("{client-certificate: /c, client-key-data: YQ==}").unwrap(),
        Some(ClientIdentity {
            certificate: PemSource::File("/c".into()),
            key: PemSource::Data("client-key-data", "YQ==".into()),
        })
    );
    assert_eq!(identity("{client-key: /k}").unwrap(), None);
}

#[test]
fn an_exec_needs_what_kubectl_asks_of_it() {
    let check = |user: &str| planned("{server: https://api}", user, &[]).map(|it| it.login);
    let exec = |fields: &str| check(&format!("{{exec: {{command: x, {fields}}}}}"));
    let version = |version: &str| format!("apiVersion: client.authentication.k8s.io/{version}");
    let mode = "interactiveMode: Never";
    assert!(exec(&version("v1beta1")).is_ok());
    assert!(exec(&format!("{}, {mode}", version("v1"))).is_ok());
    let missing = |result: Result<Login, PlanError>| match result {
        Err(PlanError::ExecWithout(what)) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(missing(exec(mode)), "apiVersion");
    assert_eq!(
        missing(exec(&format!("apiVersion: '', {mode}"))),
        "apiVersion"
    );
    assert_eq!(missing(exec(&version("v1"))), "interactiveMode");
    assert_eq!(
        missing(exec(&format!(
            "{}, env: [{{value: v}}]",
            version("v1beta1")
        ))),
        "name of each variable in env"
    );
    // Also where a token goes before it.
    assert_eq!(
        missing(check("{token: t, exec: {apiVersion: v}}")),
        "command"
    );
    for version in [version("v1alpha1"), format!("apiVersion: v1, {mode}")] {
        let refused = exec(&version);
        assert!(
            matches!(refused, Err(PlanError::ExecVersion(_))),
            "{version}"
        );
    }
    let both = format!(
        "{{exec: {{command: x, {}}}, auth-provider: {{name: oidc, config: {{}}}}}}",
        version("v1beta1")
    );
    assert!(matches!(check(&both), Err(PlanError::TwoPlugins)));
    assert!(matches!(
        check("{as-groups: [admins]}"),
        Err(PlanError::AsNobody)
    ));
}
