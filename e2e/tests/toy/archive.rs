//! A stored profile outlives its request: users who may get the namespace's archive can open it,
//! and nobody else can.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::results::Reply;
use e2e::users::{Right, User};
use e2e::{ENABLED, Fixture, pods, poll, shared};
use http::Method;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use phpprof_crds::{ARCHIVE, ProfileArchive, ProfileRequest};
use phpprof_profile::start;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(20);
/// Pods take half a minute to end.
const GONE: Duration = Duration::from_secs(90);

/// Profiles the pod web by a request of this name, then deletes the request.
async fn profiled(fixture: &Fixture, user: &User, name: &str) -> Result<()> {
    let line = format!("run pod/web -c fpm -d 1s --name {name}");
    user.run(&line).await?.well()?;
    let requests = fixture.api::<ProfileRequest>();
    requests.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Loads the start page as a browser does, opens the profile first, and compares it with itself.
async fn looks_around(viewer: &User) -> Result<()> {
    let mut terminal = viewer.on_a_terminal("ui").await?;
    let said = terminal.shows("/a/", SOON).await?;
    let address = said.split_whitespace().find(|it| it.starts_with("http://"));
    let address = address.context("no address")?;
    let (page, key) = address.split_once('#').context("no key")?;
    let (base, _) = page.rsplit_once("/a/").context("no path")?;
    let browser = Client::new();
    let start = browser.get(page).send().await?;
    let policy = start.headers().get("content-security-policy");
    ensure!(
        policy.is_some_and(|it| it == start::CONTENT_SECURITY_POLICY),
        "{policy:?}"
    );
    // The API server's proxy may rewrite HTML, and the policy allows only one script.
    let script = |page: &str| page.split("<script>").nth(1).map(str::to_owned);
    let shown = start.text().await?;
    ensure!(script(&shown) == script(&start::page()), "{shown}");
    let ask = async |path: &str, question: Value| -> Result<Value> {
        let asked = browser.post(format!("{base}{path}"));
        let answer = asked.body(question.to_string()).send().await?;
        Ok(serde_json::from_slice(&answer.bytes().await?)?)
    };
    let namespace = page.rsplit('/').next().unwrap_or_default();
    let listed = ask(&format!("/a/{namespace}"), json!({"accessKey": key})).await?;
    let first = &listed["profiles"][0];
    let by = first["requestedBy"].as_str().unwrap_or_default();
    ensure!(
        first["name"] == "first" && listed["profiles"][1].is_null() && !by.is_empty(),
        "{listed}"
    );
    let uid = first["uid"].as_str().context("no uid")?;
    let question = json!({"accessKey": key, "before": {"name": "first", "uid": uid}});
    let opened = ask(&format!("/a/{namespace}/first/{uid}"), question).await?;
    for name in ["flame", "diff"] {
        let mut links = opened["links"].as_array().into_iter().flatten();
        let link = links.find(|link| link["name"] == name);
        let path = link.and_then(|link| link["path"].as_str());
        let path = path.with_context(|| format!("no {name}: {opened}"))?;
        let drawn = browser.get(format!("{base}{path}")).send().await?;
        ensure!(drawn.status() == StatusCode::OK, "{name}: {drawn:?}");
        let drawn = drawn.text().await?;
        ensure!(
            drawn.contains("Demo\\\\") && drawn.trim_end().ends_with("</html>"),
            "{name}"
        );
    }
    // Requests with another host name (DNS rebinding), and those without the path, get nothing.
    let other = browser
        .get(page)
        .header("host", "example.com")
        .send()
        .await?;
    ensure!(other.status() == StatusCode::MISDIRECTED_REQUEST);
    let (origin, _) = base.rsplit_once('/').context("no path")?;
    let guessed = browser
        .get(format!("{origin}/a/{namespace}"))
        .send()
        .await?;
    ensure!(guessed.status() == StatusCode::NOT_FOUND);
    terminal.types("\x03").await?;
    ensure!(terminal.ends(SOON).await? == 0);
    Ok(())
}

/// The key of the fixture's archive, once it differs from the earlier one.
async fn key(fixture: &Fixture, before: &str) -> Result<String> {
    poll("the archive has a key", SOON, async || {
        let archive = fixture.api::<ProfileArchive>().get_opt(ARCHIVE).await?;
        let key = archive.and_then(|archive| Some(archive.status?.access_key.to_string()));
        Ok(key.filter(|key| key != before))
    })
    .await
}

/// The answer to a key for the fixture's namespace.
async fn open(fixture: &Fixture, key: &str) -> Result<Reply> {
    let path = format!("/a/{}", fixture.namespace);
    fixture
        .ask(Method::POST, &path, json!({"accessKey": key}))
        .await
}

async fn names(fixture: &Fixture, key: &str) -> Result<Vec<String>> {
    let reply = open(fixture, key).await?;
    ensure!(reply.status == 200, "{}: {}", reply.status, reply.text());
    let answer: Value = serde_json::from_slice(&reply.body)?;
    let profiles = answer["profiles"].as_array().context("no profiles")?;
    let names = profiles.iter().map(|it| it["name"].as_str());
    names
        .map(|name| name.map(str::to_owned).context("no name"))
        .collect()
}

async fn check_refused(fixture: &Fixture, key: &str) -> Result<()> {
    let reply = open(fixture, key).await?;
    ensure!(reply.status == 403, "{}: {}", reply.status, reply.text());
    Ok(())
}

#[test]
fn profiles_outlive_their_request() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::php("web")]).await?;
        let administrator = fixture.administrator()?;
        profiled(fixture, &administrator, "first").await?;
        // A user who may view the namespace, and results, needs no other right.
        let rights = [
            ("get", "profilerequests"),
            ("get", "profilearchives"),
            ("get", "services/proxy"),
            ("create", "services/proxy"),
        ];
        let rights = rights.map(|(verb, resource)| Right { verb, resource });
        let viewer = fixture.with_rights("viewer", &rights).await?;
        let listed = viewer.run("list --stored -o name").await?.well()?;
        ensure!(
            listed.starts_with("first@") && listed.lines().count() == 1,
            "{listed}"
        );
        for (line, expected) in [
            ("list --stored", "pod/web"),
            ("get first -o json", "\"samples\""),
            ("top first", "Demo\\"),
            (&*format!("top {}", listed.trim()), "Demo\\"),
            ("diff first first", " before, "),
            ("flame first -o first.html", "wrote first.html"),
            ("download first", "wrote first.pb.gz"),
        ] {
            let said = viewer.run(line).await?.well()?;
            ensure!(said.contains(expected), "{line}: {said}");
        }
        // The completion proposes nothing if the store does not answer within a second.
        poll("a name that is stored is proposed", SOON, async || {
            let proposed = viewer.proposals("top fi").await?;
            Ok(proposed.starts_with("first\tstored, for ").then_some(()))
        })
        .await?;
        looks_around(&viewer).await?;
        let without = fixture.with_rights("without", &rights[..1]).await?;
        let said = without.run("list --stored").await?;
        ensure!(
            said.code == 4 && said.err.contains("get profilearchives"),
            "{said:?}"
        );
        poll("the archive has counted", SOON, async || {
            let archive = fixture.api::<ProfileArchive>().get(ARCHIVE).await?;
            let status = archive.status.unwrap_or_default();
            let counted = status.profiles == Some(1) && status.bytes > Some(0);
            Ok(counted.then_some(()))
        })
        .await
    })
}

#[test]
fn a_key_opens_its_namespace_until_rotation() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::php("web")]).await?;
        profiled(fixture, &fixture.administrator()?, "first").await?;
        let first = key(fixture, "").await?;
        ensure!(names(fixture, &first).await? == ["first"], "not listed");
        fixture
            .beside(ENABLED, async |other| {
                other.start(&[pods::php("web")]).await?;
                profiled(other, &other.administrator()?, "second").await?;
                let theirs = key(other, "").await?;
                ensure!(names(other, &theirs).await? == ["second"], "not listed");
                check_refused(other, &first).await?;
                check_refused(fixture, &theirs).await
            })
            .await?;
        let archives = fixture.api::<ProfileArchive>();
        let rotate = async |generation: i64| {
            let patch = Patch::Merge(json!({"spec": {"accessKeyGeneration": generation}}));
            archives
                .patch(ARCHIVE, &PatchParams::default(), &patch)
                .await
        };
        rotate(1).await?;
        let second = key(fixture, &first).await?;
        check_refused(fixture, &first).await?;
        ensure!(names(fixture, &second).await? == ["first"], "not listed");
        ensure!(rotate(0).await.is_err(), "an old key would open it again");
        // A new archive has another key, whatever its generation.
        archives.delete(ARCHIVE, &DeleteParams::default()).await?;
        let third = key(fixture, &second).await?;
        ensure!(third != first, "the first key is back");
        check_refused(fixture, &second).await?;
        ensure!(names(fixture, &third).await? == ["first"], "not listed");
        let named: ProfileArchive = serde_json::from_value(json!({
            "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileArchive", "metadata": {"name": "another"}, "spec": {},
        }))?;
        let made = archives.create(&PostParams::default(), &named).await;
        ensure!(made.is_err(), "there can be two");
        Ok(())
    })
}

#[test]
fn a_recreated_namespace_reads_nothing_old() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::php("web")]).await?;
        profiled(fixture, &fixture.administrator()?, "first").await?;
        let old = key(fixture, "").await?;
        ensure!(names(fixture, &old).await? == ["first"], "not listed");
        make_anew(fixture).await?;
        check_refused(fixture, &old).await?;
        fixture.start(&[pods::php("web")]).await?;
        profiled(fixture, &fixture.administrator()?, "second").await?;
        let new = key(fixture, &old).await?;
        ensure!(names(fixture, &new).await? == ["second"], "the old one's");
        check_refused(fixture, &old).await
    })
}

/// Deletes the fixture's namespace and creates one with the same name and labels.
async fn make_anew(fixture: &Fixture) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
    let before = namespaces.get(&fixture.namespace).await?.metadata;
    let background = DeleteParams::background();
    namespaces.delete(&fixture.namespace, &background).await?;
    poll("the namespace is gone", GONE, async || {
        let there = namespaces.get_opt(&fixture.namespace).await?;
        Ok(there.is_none().then_some(()))
    })
    .await?;
    let mut namespace = Namespace::default();
    namespace.metadata.name = before.name;
    namespace.metadata.labels = before.labels;
    namespaces
        .create(&PostParams::default(), &namespace)
        .await?;
    Ok(())
}
