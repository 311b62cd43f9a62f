//! The whole server, asked by rmcp's own client in this process.

mod double;
mod follow;
mod heaps;
mod planted;
mod upgrade;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use phpprof_profile::findings::RULES;
use phpprof_profile::{Builder, FrameRef, SampleTag, Settings, encode_gzip};
use rmcp::model::{CallToolRequestParams, CallToolResult};
use rmcp::service::RunningService;
use rmcp::{RoleClient, ServiceExt as _};
use serde_json::{Value, json};

use super::answer::LARGEST_ANSWER;
use super::files::FileList;
use super::run::AgentRuns;
use super::serve::AgentServer;
use super::store::AgentStore;
use super::tools::AgentTool;
use crate::cli::McpFlags;
use crate::global::Global;

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../profile/tests/findings");

struct TestAgent(RunningService<RoleClient, ()>);

impl TestAgent {
    async fn of(server: AgentServer) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move {
            let running = server.serve(ours).await.unwrap();
            running.waiting().await
        });
        TestAgent(().serve(theirs).await.unwrap())
    }

    async fn of_files(paths: &[PathBuf]) -> Self {
        let files = FileList::of(paths).unwrap();
        Self::of(AgentServer::new(AgentStore::of_files(files), None)).await
    }

    async fn ask(&self, tool: &str, arguments: Value) -> CallToolResult {
        let Value::Object(arguments) = arguments else {
            panic!("an object")
        };
        let call = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        self.0.call_tool(call).await.unwrap()
    }

    /// A successful answer within its bound, as data.
    async fn answered(&self, tool: &str, arguments: Value) -> Value {
        let result = self.ask(tool, arguments.clone()).await;
        let text = text(&result);
        assert_eq!(result.is_error, Some(false), "{tool} {arguments}: {text}");
        assert!(text.len() <= LARGEST_ANSWER, "{tool}: {}", text.len());
        let data: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(result.structured_content.as_ref(), Some(&data));
        assert!(data["next"].is_array(), "{tool}: {text}");
        data
    }

    async fn refused(&self, tool: &str, arguments: Value) -> String {
        let result = self.ask(tool, arguments).await;
        let text = text(&result);
        assert_eq!(result.is_error, Some(true), "{tool}: {text}");
        assert_eq!(result.structured_content, None, "{tool}");
        assert!(text.contains("\nhint: "), "{tool}: {text}");
        text
    }
}

fn text(result: &CallToolResult) -> String {
    let content = serde_json::to_value(&result.content).unwrap();
    content[0]["text"].as_str().unwrap().to_owned()
}

fn recorded(name: &str) -> PathBuf {
    Path::new(RECORDED).join(format!("{name}.pb.gz"))
}

fn frame<'a>(name: &'a str, file: &'a str, line: i64) -> FrameRef<'a> {
    FrameRef {
        name,
        file,
        start_line: 1,
        line,
    }
}

#[tokio::test]
async fn unlike_profiles_are_compared_by_force_only() {
    let folder = tempfile::tempdir().unwrap();
    let [slow, fast] = [("slow", 100_000_000), ("fast", 10_000_000)].map(|(name, period)| {
        let mut builder = Builder::new(Settings {
            period,
            ..Settings::default()
        });
        builder.add(&[frame("f", "/srv/a.php", 3)], &[9, 90, 90], &[]);
        let path = folder.path().join(format!("{name}.pb.gz"));
        std::fs::write(&path, encode_gzip(&builder.finish())).unwrap();
        path
    });
    let agent = TestAgent::of_files(&[slow.clone(), fast.clone()]).await;
    for tool in ["diff", "verdict"] {
        let mut asked = json!({"before": slow, "after": fast});
        let refusal = agent.refused(tool, asked.clone()).await;
        assert!(refusal.contains("cannot be compared"), "{refusal}");
        assert!(refusal.contains("all the same with force"), "{refusal}");
        asked["force"] = json!(true);
        let answer = agent.answered(tool, asked).await;
        assert_eq!(answer["unlike"], json!(["rate"]), "{answer}");
    }
}

#[tokio::test]
async fn answers_stay_within_their_bound() {
    let mut builder = Builder::new(Settings::default());
    let long = |number: usize| format!("{number}\\{}", "名".repeat(300));
    for stack in 0..300 {
        let names: Vec<String> = (0..60).map(|depth| long(stack % 7 + depth)).collect();
        let frames: Vec<_> = names.iter().map(|name| frame(name, name, 5)).collect();
        let route = long(stack);
        let label = [SampleTag::Str("route", &route)];
        builder.add(&frames, &[9, 90_000_000, 90_000_000], &label);
    }
    builder.comment(include_str!("../../../contract/comment.json").trim());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.pb.gz");
    std::fs::write(&path, encode_gzip(&builder.finish())).unwrap();
    let agent = TestAgent::of_files(std::slice::from_ref(&path)).await;
    let name = path.display().to_string();
    let top = agent
        .answered("top", json!({"profile": name, "most": 100}))
        .await;
    assert!(top["leftOut"].as_u64().unwrap() > 0);
    let function = top["rows"][0]["function"].clone();
    for (tool, arguments) in [
        ("describe_profile", json!({"profile": name})),
        ("findings", json!({"profile": name})),
        ("top", json!({"profile": name, "by": "line", "most": 100})),
        ("top", json!({"profile": name, "by": "route", "most": 100})),
        (
            "callers",
            json!({"profile": name, "function": function, "most": 100}),
        ),
        ("callees", json!({"profile": name, "most": 100})),
        ("lines", json!({"profile": name, "most": 100})),
        ("diff", json!({"before": name, "after": name, "most": 100})),
    ] {
        agent.answered(tool, arguments).await;
    }
}

#[tokio::test]
async fn failures_have_hints_and_the_server_lives_on() {
    let agent = TestAgent::of_files(&[recorded("sleep-has")]).await;
    let name = recorded("sleep-has").display().to_string();
    for (tool, arguments, part) in [
        ("top", json!({}), "missing field `profile`"),
        (
            "top",
            json!({"profile": "/etc/passwd"}),
            "there is no profile",
        ),
        (
            "top",
            json!({"profile": name, "colour": 1}),
            "unknown field",
        ),
        ("top", json!({"profile": name, "by": "colour"}), "colour"),
        (
            "top",
            json!({"profile": name, "sampleType": "x"}),
            "no sample type",
        ),
        (
            "top",
            json!({"profile": name, "labels": {"route": "/"}}),
            "no sample has the label",
        ),
        (
            "callers",
            json!({"profile": name, "function": "try"}),
            "[\"try_again\"]",
        ),
        (
            "callees",
            json!({"profile": name, "path": ["usleep"]}),
            "entry point",
        ),
        (
            "lines",
            json!({"profile": name, "file": "x"}),
            "of this file",
        ),
        (
            "requests",
            json!({"profile": name}),
            "has no list of requests",
        ),
        ("dump", json!({"profile": name}), "not a snapshot"),
        (
            "verdict",
            json!({"before": name, "after": name, "limits": ["5"]}),
            "limits: 5:",
        ),
        (
            "verdict",
            json!({"before": name, "after": name, "limits": ["/=5%", "/=2ms"]}),
            "has two limits",
        ),
        (
            "verdict",
            json!({"before": name, "after": name, "limits": ["-1%"]}),
            "not from 0 to 1000",
        ),
    ] {
        let refusal = agent.refused(tool, arguments.clone()).await;
        assert!(refusal.contains(part), "{tool} {arguments}: {refusal}");
    }
    for tool in ["run", "compare", "cancel", "colour"] {
        let call = CallToolRequestParams::new(tool);
        let error = agent.0.call_tool(call).await.unwrap_err().to_string();
        assert!(
            error.contains("no such tool; there are list_profiles"),
            "{error}"
        );
    }
    agent.answered("top", json!({"profile": name})).await;
}

fn flags() -> McpFlags {
    McpFlags {
        files: Vec::new(),
        allow_run: true,
        max_duration: 60,
        max_pods: 5,
    }
}

/// A kubeconfig of a server at this port.
fn kubeconfig(folder: &Path, port: u16) -> Global {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: gone\n\
         clusters: [{{name: gone, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n\
         contexts: [{{name: gone, context: {{cluster: gone, namespace: shop}}}}]\n"
    );
    let path = folder.join("kubeconfig");
    std::fs::write(&path, text).unwrap();
    Global {
        kubeconfig: Some(path),
        ..Global::default()
    }
}

#[tokio::test]
async fn a_cluster_that_is_gone_is_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    // Nobody listens there any more.
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let store = AgentStore::of_cluster(&kubeconfig(folder.path(), port));
    let agent = TestAgent::of(AgentServer::new(store, None)).await;
    for _ in 0..2 {
        let refusal = agent.refused("list_profiles", json!({})).await;
        assert!(
            refusal.contains("the API server does not answer"),
            "{refusal}"
        );
        assert!(
            refusal.contains("\"context\":\"gone\",\"namespace\":\"shop\""),
            "{refusal}"
        );
        let refusal = agent.refused("top", json!({"profile": "web"})).await;
        assert!(refusal.contains("get profilerequests/web"), "{refusal}");
    }
    let refusal = agent
        .refused("top", json!({"profile": "../../secrets"}))
        .await;
    assert!(refusal.contains("not the name of a profile"), "{refusal}");
    let tools = agent.0.list_all_tools().await.unwrap();
    assert_eq!(tools.len(), AgentTool::offered(false).count());
}

#[tokio::test]
async fn a_missing_kubeconfig_is_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let global = Global {
        kubeconfig: Some(folder.path().join("nowhere")),
        ..Global::default()
    };
    let agent = TestAgent::of(AgentServer::new(AgentStore::of_cluster(&global), None)).await;
    let refusal = agent.refused("list_profiles", json!({})).await;
    assert!(refusal.contains("no usable kubeconfig"), "{refusal}");
}

#[tokio::test]
async fn runs_beyond_their_limits_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let store = AgentStore::of_cluster(&kubeconfig(folder.path(), port));
    let agent = TestAgent::of(AgentServer::new(store, Some(AgentRuns::of(&flags())))).await;
    for (arguments, part) in [
        (
            json!({"target": "deploy/web", "durationSeconds": 61}),
            "beyond this server's limits",
        ),
        (
            json!({"target": "deploy/web", "maxPods": 6}),
            "beyond this server's limits",
        ),
        (
            json!({"target": "deploy/web", "maxPods": 0}),
            "beyond this server's limits",
        ),
        (
            json!({"target": "shop/web"}),
            "not a known kind of workload",
        ),
        (
            json!({"target": "deploy/web"}),
            "cannot create profilerequests",
        ),
        (
            json!({"target": "deploy/web", "snapshot": true}),
            "cannot create profilerequests",
        ),
    ] {
        let refusal = agent.refused("run", arguments).await;
        assert!(refusal.contains(part), "{refusal}");
    }
    let both = |limit: &str, value: Value| {
        let mut both = json!({"before": "deploy/web", "after": "deploy/canary"});
        both[limit] = value;
        both
    };
    for (arguments, part) in [
        (
            both("durationSeconds", json!(61)),
            "beyond this server's limits",
        ),
        // Five pods are the limit of both together.
        (both("maxPods", json!(3)), "1 to 2 pods of each"),
        (both("maxPods", json!(0)), "beyond this server's limits"),
        (both("after", json!("deploy/web")), "are the same"),
        (
            both("after", json!("shop/web")),
            "not a known kind of workload",
        ),
        (both("maxPods", json!(2)), "cannot create profilerequests"),
    ] {
        let refusal = agent.refused("compare", arguments).await;
        assert!(refusal.contains(part), "{refusal}");
    }
    let refusal = agent.refused("cancel", json!({"profile": "web"})).await;
    assert!(
        refusal.contains("has not started this profile"),
        "{refusal}"
    );
}

/// Where a cluster is silent, a call can be cancelled, and others are answered meanwhile.
#[tokio::test]
async fn a_cancelled_call_ends_at_once() {
    use rmcp::model::{CallToolRequest, ClientRequest};
    use rmcp::service::PeerRequestOptions;
    let folder = tempfile::tempdir().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let store = AgentStore::of_cluster(&kubeconfig(folder.path(), port));
    let agent = TestAgent::of(AgentServer::new(store, None)).await;
    for _ in 0..8 {
        let call = CallToolRequest::new(CallToolRequestParams::new("list_profiles"));
        let call = ClientRequest::CallToolRequest(call);
        let options = PeerRequestOptions::no_options();
        let sent = agent
            .0
            .send_cancellable_request(call, options)
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        sent.cancel(None).await.unwrap();
    }
    // More calls were cancelled than work at the same time: they have let go of their turns.
    let asked = agent.refused("top", json!({"profile": "../x"}));
    let refusal = tokio::time::timeout(Duration::from_secs(5), asked)
        .await
        .unwrap();
    assert!(refusal.contains("not the name of a profile"), "{refusal}");
}

#[tokio::test]
async fn files_are_listed_with_what_to_ask() {
    let agent = TestAgent::of_files(&[PathBuf::from(RECORDED)]).await;
    let list = agent.answered("list_profiles", json!({})).await;
    assert_eq!(list["localFiles"], true);
    let shown = list["profiles"].as_array().unwrap().len();
    let all = shown + usize::try_from(list["leftOut"].as_u64().unwrap()).unwrap();
    assert_eq!(all, 2 * RULES.len());
    let first = &list["next"][0];
    assert_eq!(first["tool"], "describe_profile");
    let described = agent
        .answered("describe_profile", first["arguments"].clone())
        .await;
    assert!(described["quality"]["samples"].as_i64().unwrap() > 0);
    assert_eq!(described["profile"], first["arguments"]["profile"]);
}
