//! What a kuberc permits.

use super::*;

const BEGIN: &str = "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\n";

fn of(fields: &str) -> Result<FoundPolicy, String> {
    rule(&format!("{BEGIN}{fields}"))
}

#[test]
fn a_rule_is_read_as_kubectl_reads_it() {
    let list = |words: &[&str]| {
        let words = words.iter().map(|it| (*it).to_owned()).collect();
        FoundPolicy::Rule(PluginRule::Allowlist(words))
    };
    for (fields, wanted) in [
        ("", FoundPolicy::Rule(PluginRule::AllowAll)),
        (
            "credentialPluginPolicy: ''",
            FoundPolicy::Rule(PluginRule::AllowAll),
        ),
        (
            "credentialPluginPolicy: AllowAll\ncredentialPluginAllowlist: null",
            FoundPolicy::Rule(PluginRule::AllowAll),
        ),
        (
            "credentialPluginPolicy: DenyAll",
            FoundPolicy::Rule(PluginRule::DenyAll),
        ),
        (
            "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: [{command: a}, {name: /b/c}, {name: d, command: d}]",
            list(&["a", "/b/c", "d"]),
        ),
    ] {
        assert_eq!(of(fields), Ok(wanted), "{fields}");
    }
}

#[test]
fn a_rule_that_kubectl_refuses_is_refused() {
    for fields in [
        "credentialPluginPolicy: denyall",
        "credentialPluginPolicy: 5",
        "credentialPluginPolicy: DenyAll\ncredentialPluginPolicy: AllowAll",
        "credentialPluginPolicy: DenyAll\ncredentialPluginAllowlist: []",
        "credentialPluginAllowlist: [{command: a}]",
        "credentialPluginPolicy: Allowlist",
        "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: []",
        "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: a",
        "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: [{}]",
        "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: [a]",
        "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: [{command: 5}]",
        "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: [{command: a, name: b}]",
        "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: [{command: ./a}]",
        "credentialPluginPolicy: [",
    ] {
        assert!(of(fields).is_err(), "{fields}");
    }
}

#[test]
fn the_first_preference_of_a_file_counts() {
    let deny = format!("{BEGIN}credentialPluginPolicy: DenyAll\n");
    let older = "apiVersion: kubectl.config.k8s.io/v1alpha1\nkind: Preference\n";
    let other = "apiVersion: v1\nkind: Config\n";
    let all = |parts: &[&str]| rule(&parts.join("---\n")).unwrap();
    assert_eq!(all(&[""]), FoundPolicy::Nothing);
    assert_eq!(all(&[other]), FoundPolicy::OtherKinds);
    assert_eq!(all(&[other, &deny]), FoundPolicy::Rule(PluginRule::DenyAll));
    assert_eq!(
        all(&[older, &deny]),
        FoundPolicy::Rule(PluginRule::AllowAll)
    );
    let newer = deny.replace("v1beta1", "v1");
    assert_eq!(
        all(&["\n", &newer, older]),
        FoundPolicy::Rule(PluginRule::DenyAll)
    );
}

#[test]
fn an_allowlist_permits_names_and_resolved_paths() {
    let found = |name: &str| (name == "login").then(|| "/bin/login".to_owned());
    let permits = |entry: &str, command: &str, resolved: &str| {
        PluginRule::Allowlist(vec![entry.to_owned()]).permits(command, resolved, found)
    };
    assert!(permits("login", "login", "/elsewhere/login"));
    assert!(permits("/bin/login", "login", "/bin/login"));
    assert!(permits("login", "/bin/login", "/bin/login"));
    assert!(!permits("login", "/tmp/login", "/tmp/login"));
    assert!(!permits("other", "login", "/bin/login"));
    assert!(!permits("/opt/login", "login", "/bin/login"));
    assert!(PluginRule::AllowAll.permits("x", "/x", found));
    assert!(!PluginRule::DenyAll.permits("x", "/x", found));
}

#[test]
fn a_file_is_named_at_home_or_nowhere() {
    let of = |variables: &[(&str, &str)]| {
        place(Some(Path::new("/home/ann")), &|name| {
            let found = variables.iter().find(|it| it.0 == name);
            found.map(|it| it.1.to_owned())
        })
        .map(|it| (it.path.display().to_string(), it.is_named))
    };
    let home = Some(("/home/ann/.kube/kuberc".to_owned(), false));
    assert_eq!(of(&[]), home);
    assert_eq!(of(&[("KUBERC", ""), ("KUBECTL_KUBERC", "true")]), home);
    assert_eq!(of(&[("KUBERC", "/rc")]), Some(("/rc".to_owned(), true)));
    assert_eq!(of(&[("KUBERC", "off")]), None);
    assert_eq!(of(&[("KUBERC", "/rc"), ("KUBECTL_KUBERC", "False")]), None);
}

#[test]
fn a_missing_kuberc_matters_only_if_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".kube/kuberc");
    let load = |named: Option<String>| {
        super::load(Some(folder.path()), &|name| {
            named.clone().filter(|_| name == "KUBERC")
        })
    };
    let named = || Some(path.display().to_string());
    assert!(matches!(load(None), Ok(None)));
    assert!(matches!(load(named()), Err(KubercError::Read { .. })));
    std::fs::create_dir(folder.path().join(".kube")).unwrap();
    std::fs::write(&path, "kind: Other\n").unwrap();
    assert!(matches!(load(None), Ok(None)));
    assert!(matches!(load(named()), Err(KubercError::Wrong { .. })));
    std::fs::write(&path, format!("{BEGIN}credentialPluginPolicy: DenyAll\n")).unwrap();
    for name in [None, named()] {
        assert_eq!(load(name).unwrap().unwrap().rule, PluginRule::DenyAll);
    }
    std::fs::write(&path, format!("{BEGIN}credentialPluginPolicy: Deny\n")).unwrap();
    assert!(matches!(load(None), Err(KubercError::Wrong { .. })));
}
