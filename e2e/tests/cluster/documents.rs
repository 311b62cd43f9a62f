//! Runs the documentation's commands for a cluster in their order: some pages in each run, the
//! others with `FULL=1`.
//!
//! A page becomes one shell script in a folder that looks like a clone. The documentation's
//! namespace `shop` is the test's own, and so are the requests and files that the examples name.
//!
//! Does not: install, upgrade or remove phpprof; `releases.rs` does.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::pods::{self, image};
use e2e::{ENABLED, Fixture, NOT_ENABLED, RESTRICTED, exclusive, release, say, shared};
use phpprof_documents::{FIRST, IN_TEST, OF_HOST, Setup, TUTORIAL, blocks, pages, root};
use tempfile::TempDir;

/// The page with pods whose PHP runs as another user.
const OF_RESTRICTED: &str = "docs/guides/restricted-namespaces.md";
const SETUPS: [Setup; 3] = [Setup::Cluster, Setup::Example, Setup::Terminal];
/// Commands that the test replaces by its own: creating the namespace, and the shell's access to
/// the cluster.
const DONE_HERE: [&str; 3] = [
    "kubectl create namespace shop",
    "kubectl delete namespace shop",
    "eval ",
];
/// The seconds that a program on a terminal runs, in which a sampler starts.
const ON_TERMINAL: u32 = 15;
/// The time for three profiles and the commands between them.
const LONGEST: Duration = Duration::from_secs(600);

/// Objects and files that the examples name; they are created first.
const GIVEN: &str = "
for name in web-x2x4z web-7k2lq web-29384750 web-29384760; do
  kubectl phpprof run deploy/web -d 3s --labels method,route --name $name --wait=false
done
kubectl wait --for=condition=Complete --timeout=2m pprof --all
uid=$(kubectl get pprof web-x2x4z -o jsonpath='{.metadata.uid}')
pod=$(kubectl get pods -l app=web -o jsonpath='{.items[0].metadata.name}')
kubectl phpprof download web-x2x4z -o web.pb.gz
cp web.pb.gz before.pb.gz
cp web.pb.gz after.pb.gz
trap 'kubectl -n phpprof-system delete secret phpprof-grafana --ignore-not-found' EXIT
";
/// Names that only a DNS server in the cluster resolves, and the users of the pods in the tests.
const NAMES: [(&str, &str); 3] = [
    ("web-x2x4z@0b1c2d3e", "web-x2x4z@$uid"),
    ("web-7d9f5c6b8-x2x4z", "$pod"),
    (
        "--run-as-user 33 --run-as-group 33",
        "--run-as-user 1000 --run-as-group 1000",
    ),
];
/// The test makes no such requests, so the profile may be empty, which is exit code 5.
const OF_SOME_REQUESTS: [&str; 2] = ["--path-prefix", "--min-request-age"];

/// A line of a page as the test runs it.
fn line(line: &str) -> String {
    let named = NAMES
        .iter()
        .fold(line.to_owned(), |line, (from, to)| line.replace(from, to));
    if OF_SOME_REQUESTS.iter().any(|flag| line.contains(flag)) {
        return format!("{{ {named}\n}} || test $? = 5");
    }
    named
}

/// A page's commands for a cluster, with this namespace instead of `shop`.
fn script(text: &str, namespace: &str) -> String {
    let commands = phpprof_documents::script(text, &SETUPS, ON_TERMINAL);
    let lines = commands
        .lines()
        .filter(|line| !DONE_HERE.iter().any(|done| line.starts_with(done)));
    let lines: Vec<String> = lines.map(line).collect();
    in_namespace(&lines.join("\n"), namespace)
}

/// Commands that a page's script needs first: they set kubectl's namespace, and create what its
/// examples name.
fn before(text: &str, namespace: &str) -> String {
    let context = format!(
        "kubectl config view --raw --flatten --minify > kubeconfig\nexport KUBECONFIG=$PWD/kubeconfig\nkubectl config set-context --current --namespace={namespace}\n"
    );
    let has_examples = blocks(text)
        .iter()
        .any(|block| block.setup() == Some(Setup::Example));
    context + if has_examples { GIVEN } else { "" }
}

pub(crate) fn in_namespace(text: &str, namespace: &str) -> String {
    ["-n ", "namespace ", "namespace: "]
        .iter()
        .fold(text.to_owned(), |text, before| {
            text.replace(&format!("{before}shop"), &format!("{before}{namespace}"))
        })
}

/// Copies a folder of the clone. Its manifests get this namespace and the images of this run.
fn copy(from: &Path, to: &Path, namespace: &str) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target, namespace)?;
        } else {
            let text = std::fs::read_to_string(entry.path())?;
            let text = text.replace("phpprof.dev/demo:dev", &image("demo"));
            std::fs::write(target, in_namespace(&text, namespace))?;
        }
    }
    Ok(())
}

/// A folder with the parts of a clone that the commands name.
pub(crate) fn clone(namespace: &str) -> Result<TempDir> {
    let folder = TempDir::new()?;
    for name in ["examples", "demo/shop", "demo/k8s"] {
        copy(&root().join(name), &folder.path().join(name), namespace)?;
    }
    std::os::unix::fs::symlink(root().join("charts"), folder.path().join("charts"))?;
    Ok(folder)
}

/// Runs a script in a folder, with a bash that stops at the first failure.
pub(crate) async fn run(page: &str, script: &str, folder: &Path) -> Result<()> {
    let mut shell = tokio::process::Command::new("bash");
    shell
        .args(["-euxo", "pipefail", "-c", script])
        .current_dir(folder)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(LONGEST, shell.output())
        .await
        .with_context(|| format!("{page} took more than {LONGEST:?}"))??;
    ensure!(
        output.status.success(),
        "{page}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    say(&format!("{page}: {} lines", script.lines().count()));
    Ok(())
}

/// Runs a page's commands.
async fn follow(fixture: &Fixture, page: &str) -> Result<()> {
    let text = std::fs::read_to_string(root().join(page))?;
    let script = script(&text, &fixture.namespace);
    ensure!(
        !script.trim().is_empty(),
        "{page} has no commands for a cluster"
    );
    match page {
        // The tutorial deploys its own application.
        TUTORIAL => {}
        OF_RESTRICTED => {
            let pod = pods::restricted(pods::php("web"));
            fixture.deploy("web", 1, pod).await?;
        }
        _ => fixture.deploy("web", 1, pods::php("web")).await?,
    }
    let folder = clone(&fixture.namespace)?;
    let script = before(&text, &fixture.namespace) + &script;
    run(page, &script, folder.path()).await
}

/// The same in another namespace, with the labels that the page needs.
async fn follow_beside(fixture: &Fixture, page: &str) -> Result<()> {
    let labels = match page {
        OF_RESTRICTED => RESTRICTED,
        _ => ENABLED,
    };
    fixture
        .beside(labels, async |own| follow(own, page).await)
        .await
}

/// The pages with commands for a cluster that have no test of their own: those of each run, or the
/// others.
fn pages_with_commands(in_test: bool) -> Result<Vec<String>> {
    let pages = pages()?.into_iter().filter(|(page, text)| {
        let is_one_of = |pages: &[&str]| pages.iter().any(|other| page == Path::new(other));
        let is_asked_for =
            is_one_of(&IN_TEST) == in_test && !is_one_of(&[FIRST, TUTORIAL, OF_HOST]);
        is_asked_for && !script(text, "own").trim().is_empty()
    });
    Ok(pages.map(|(page, _)| page.display().to_string()).collect())
}

#[test]
fn the_guide_leads_to_a_profile() -> Result<()> {
    // The guide itself sets the label that opts the namespace in.
    shared(NOT_ENABLED, async |fixture| follow(fixture, FIRST).await)
}

#[test]
fn the_tutorial_makes_the_shop_fast() -> Result<()> {
    shared(NOT_ENABLED, async |fixture| follow(fixture, TUTORIAL).await)
}

#[test]
fn the_commands_of_the_shorter_pages_run() -> Result<()> {
    shared(NOT_ENABLED, async |fixture| {
        let pages = pages_with_commands(true)?;
        ensure!(pages.len() + 2 == IN_TEST.len(), "{pages:?}");
        for page in pages {
            follow_beside(fixture, &page).await?;
        }
        Ok(())
    })
}

/// These have the second cluster, one by one.
mod alone {
    use super::*;

    #[test]
    #[ignore = "FULL=1 runs it"]
    fn the_commands_of_every_other_page_run() -> Result<()> {
        // One of the pages stops all profiling for a moment, and some ask for as long as the chart
        // allows by default.
        exclusive(async |fixture| {
            release::install(&["limits.durationSeconds=300"]).await?;
            let others = pages_with_commands(false)?;
            ensure!(others.len() >= 8, "{others:?}");
            for page in others {
                follow_beside(fixture, &page).await?;
            }
            Ok(())
        })
    }
}
